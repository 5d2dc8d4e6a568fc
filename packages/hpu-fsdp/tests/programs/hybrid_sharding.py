"""Training with hybrid sharding on two machines of two cards; each rank writes its losses and groups to a folder."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch.distributed as dist
from tests.modules import UNITS, ImageClassifier, make_trainer, train
from torch.distributed.fsdp import FullyShardedDataParallel

from hpu_fsdp import HPUFSDPStrategy


def main(folder: Path, steps: int) -> None:
    """Train on this machine's part of the ranks, which the strategy starts."""
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), sharding_strategy="HYBRID_SHARD")
    trainer = make_trainer(strategy=strategy, devices=2, num_nodes=2, max_steps=steps)
    losses = train(ImageClassifier(), trainer)
    units: list[Any] = FullyShardedDataParallel.fsdp_modules(trainer.model)
    groups = [
        [sorted(dist.get_process_group_ranks(group)) for group in (unit.process_group, unit._inter_node_pg)]
        for unit in units
    ]
    (folder / f"rank-{trainer.global_rank}.json").write_text(json.dumps({"losses": losses, "groups": groups}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
