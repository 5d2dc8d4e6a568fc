"""Trainings of four ranks on two machines: DDP, and FSDP and FSDP2 with and without hybrid sharding.

Starts the two ranks of one machine, which are forked from this process; it has imported everything and opened no
device. Arguments: number of the machine, folder of the results. Each rank writes a JSON file.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch.distributed as dist
from tests.modules import UNITS, ImageClassifier, dataset, make_trainer, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy

MACHINES = 2
CARDS = 2
STEPS = 10
# Clips the gradients of each step.
CLIP = 0.5

_Callback: Any = frameworks.current().pytorch("callbacks").Callback


class HybridClassifier(ImageClassifier):
    """Classifier that shards itself over a mesh of machines and of cards."""

    groups: tuple[list[int], list[int]]
    _is_sharded = False

    def configure_model(self) -> None:
        """Shard the network, once."""
        if self._is_sharded:
            return
        self._is_sharded = True
        mesh = init_device_mesh("hpu", (MACHINES, CARDS), mesh_dim_names=("replicate", "shard"))
        for unit in [part for part in self.net.modules() if type(part) in UNITS]:
            fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        fully_shard(self.net, mesh=mesh, reshard_after_forward=False)
        self.groups = _ranks(mesh.get_group("shard")), _ranks(mesh.get_group("replicate"))


class CableMeter(_Callback):  # type: ignore[misc] # The class depends on the framework.
    """Counter of the bytes that the machine sends to the other one, after the first steps."""

    sent = 0

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Read the counter of the interface."""
        if trainer.global_step in {2, STEPS}:
            # No rank has sent anything of the next step.
            trainer.strategy.barrier()
            read = int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
            trainer.strategy.barrier()
            self.sent = read - self.sent


def _ranks(group: Any) -> list[int]:
    return sorted(dist.get_process_group_ranks(group))


def _fit(strategy: Any, module: Any = None) -> tuple[dict[str, Any], Any]:
    """Train; return the losses and the bytes that the machine sends in a step, and the Trainer."""
    meter = CableMeter()
    trainer = make_trainer(
        strategy=strategy,
        devices=CARDS,
        num_nodes=MACHINES,
        max_steps=STEPS,
        gradient_clip_val=CLIP,
        callbacks=[meter],
    )
    losses = train(module or ImageClassifier("transformer"), trainer)
    return {"losses": losses, "sent": meter.sent // (STEPS - 2)}, trainer


def _train_all() -> dict[str, dict[str, Any]]:
    """Return the results by strategy; those of hybrid sharding have the ranks of the two groups."""
    results = {"DDP": _fit("hpu_ddp")[0]}
    names: tuple[Any, ...] = ("FULL_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
    for name in names:
        strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), sharding_strategy=name)
        results[name], trainer = _fit(strategy)
        if name != "FULL_SHARD":
            units: list[Any] = FullyShardedDataParallel.fsdp_modules(trainer.model)
            [groups] = {(tuple(_ranks(unit.process_group)), tuple(_ranks(unit._inter_node_pg))) for unit in units}
            results[name]["groups"] = groups
    module = HybridClassifier("transformer")
    sharded = HPUModelParallelStrategy(data_parallel_size=MACHINES * CARDS, tensor_parallel_size=1)
    results["FSDP2"] = _fit(sharded, module)[0] | {"groups": module.groups}
    return results


def _fork_rank(machine: int, local_rank: int, folder: Path) -> int:
    """Fork a rank that trains, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    rank = machine * CARDS + local_rank
    variables = {"LOCAL_RANK": local_rank, "NODE_RANK": machine, "RANK": rank, "WORLD_SIZE": MACHINES * CARDS}
    os.environ |= {name: str(value) for name, value in variables.items()}
    try:
        (folder / f"rank-{rank}.json").write_text(json.dumps(_train_all()))
    except BaseException:  # noqa: BLE001 - the process must not run the rest of the program.
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Start the ranks of this machine, and exit with 1 if one fails."""
    machine, folder = int(sys.argv[1]), Path(sys.argv[2])
    dataset()
    pids = [_fork_rank(machine, local_rank, folder) for local_rank in range(CARDS)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
