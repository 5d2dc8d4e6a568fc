"""Asynchronous saves on two simulated devices; the helper functions run on both ranks."""

import threading
from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.held_writes import held_writes
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

STEPS = 4


class _SavingClassifier(Classifier):
    """Classifier that saves in its second step, and lets the thread write in its fourth."""

    def __init__(self, path: Path, may_write: threading.Event) -> None:
        super().__init__()
        self.path, self.may_write = path, may_write
        self.existed = True

    def on_train_batch_end(self, *args: Any) -> None:
        """Save, and look whether training goes on before the checkpoint is there."""
        if self.trainer.global_step == 2:
            self.trainer.save_checkpoint(self.path)
        if self.trainer.global_step == STEPS:
            self.existed = (self.path / "latest").exists()
            self.may_write.set()


def _train(module: Classifier, stage: int, ckpt_path: Path | None = None) -> list[float]:
    strategy = HPUDeepSpeedStrategy(stage=stage, async_save=True)
    run = trainer(strategy, max_epochs=-1, max_steps=STEPS, limit_train_batches=1)
    run.fit(module, loader(run.global_rank, 2, 1), ckpt_path=ckpt_path)
    return to_floats(module.losses)


def _save_and_resume(folder: Path, stage: int) -> dict[str, Any]:
    (folder / "saved").mkdir(exist_ok=True)
    (folder / "saved" / "tokenizer.json").touch()
    with held_writes() as may_write:
        module = _SavingClassifier(folder / "saved", may_write)
        losses = _train(module, stage)
    files = sorted(path.name for path in folder.glob("*")) + [path.name for path in folder.glob("*/*.json")]
    resumed = _train(Classifier(), stage, folder / "saved")
    return {"existed": module.existed, "files": files, "expected": losses[2:], "resumed": resumed}


@pytest.mark.parametrize("stage", [2, 3])
def test_training_goes_on_while_a_checkpoint_is_written(stage: int, on_ranks: OnRanks, tmp_path: Path) -> None:
    """The checkpoint has the state of the step that saved it, and is there when training has ended, beside a file."""
    for result in on_ranks(_save_and_resume, tmp_path, stage):
        assert not result["existed"]
        assert result["files"] == ["saved", "tokenizer.json"]
        assert result["resumed"] == pytest.approx(result["expected"], abs=1e-6)
