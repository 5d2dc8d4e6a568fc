"""A rank that is killed while it writes a sharded checkpoint leaves the last good one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_testing.killed_saves import RANKS, STEPS, kill_saves

from .modules import UNITS, ImageClassifier, make_trainer, train


class _ShardedClassifier(ImageClassifier):
    """Classifier whose network FSDP2 shards."""

    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


def _train(saves: Any, ckpt_path: Path | None, name: str, kind: str) -> None:
    is_async = kind == "async"
    strategy: Any = HPUModelParallelStrategy(RANKS, 1, async_save=is_async)
    if name == "fsdp":
        strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", async_save=is_async)
    module = (ImageClassifier if name == "fsdp" else _ShardedClassifier)(optimizer="adamw")
    trainer = make_trainer(strategy=strategy, max_steps=STEPS, limit_train_batches=1, callbacks=[saves])
    train(module, trainer, ckpt_path=ckpt_path)


_fsdp2 = pytest.mark.skipif(Version(torch.__version__) < Version("2.9.dev0"), reason="Requires: torch 2.9")


@pytest.mark.parametrize(
    ("name", "kind", "kills"),
    [
        ("fsdp", "sync", 1),
        *(
            pytest.param(name, kind, 20, marks=[pytest.mark.slow, *([_fsdp2] if name == "fsdp2" else [])])
            for name in ("fsdp", "fsdp2")
            for kind in ("sync", "async")
        ),
    ],
)
@pytest.mark.timeout(1600)
def test_killed_save_leaves_the_last_checkpoint(name: str, kind: str, kills: int, tmp_path: Path) -> None:
    kill_saves(_train, tmp_path, kills, name, kind)
