"""A rank that is killed while it writes its part of a checkpoint leaves the last good one."""

from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.killed_saves import RANKS, STEPS, kill_saves

from .modules import Classifier, loader, trainer


def _train(saves: Any, ckpt_path: Path | None, stage: str, kind: str) -> None:
    strategy = HPUDeepSpeedStrategy(stage=int(stage), async_save=kind == "async")
    # Each epoch has one batch, because Lightning resumes an epoch from its first batch.
    run = trainer(strategy, max_epochs=STEPS, callbacks=[saves])
    run.fit(Classifier(), loader(run.global_rank, RANKS, 1), ckpt_path=ckpt_path)


@pytest.mark.parametrize(
    ("stage", "kind", "kills"),
    [
        ("3", "sync", 1),
        *(pytest.param(stage, kind, 20, marks=pytest.mark.slow) for stage in ("2", "3") for kind in ("sync", "async")),
    ],
)
@pytest.mark.timeout(1600)
@pytest.mark.usefixtures("gaudi")
def test_killed_save_leaves_the_last_checkpoint(stage: str, kind: str, kills: int, tmp_path: Path) -> None:
    kill_saves(_train, tmp_path, kills, stage, kind)
