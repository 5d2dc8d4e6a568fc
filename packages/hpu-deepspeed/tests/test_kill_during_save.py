"""Tests of resuming after a rank was killed while saving a checkpoint."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing import Program
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

# Each epoch has one batch, because Lightning resumes an epoch from its first batch.
EPOCHS = 8


def _train(stage: int, path: str | None) -> list[float]:
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=stage), max_epochs=EPOCHS)
    run.fit(module, loader(run.global_rank, 2, 1), ckpt_path=path)
    return to_floats(module.losses)


def _train_and_resume(stage: int, path: str) -> tuple[list[float], list[float]]:
    return _train(stage, None), _train(stage, path)


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        pytest.param(2, "sync", marks=pytest.mark.slow),
        (3, "sync"),
        pytest.param(2, "async", marks=pytest.mark.slow),
        pytest.param(3, "async", marks=pytest.mark.slow),
    ],
)
def test_killed_training_resumes_from_the_last_complete_checkpoint(  # noqa: PLR0913, PLR0917 - a table.
    stage: int,
    kind: str,
    program: Callable[..., Program],
    on_ranks: OnRanks,
    tmp_path: Path,
    record_property: Callable[[str, int], None],
) -> None:
    """The other rank names the killed one; the losses after resuming equal those of an uninterrupted training."""
    step = random.randint(2, EPOCHS - 1)  # noqa: S311 - not for cryptography.
    path = tmp_path / "checkpoints" / "last.ckpt"
    path.mkdir(parents=True)
    (path / "tokenizer.json").touch()
    with program("kill_during_save.py", str(stage), str(path), str(step), kind) as running:
        completed: Any = running.wait(240)

    (uninterrupted, resumed), _ = on_ranks(_train_and_resume, stage, str(path))

    assert completed.code != 0, completed.output
    assert (path / "tokenizer.json").exists()
    assert not completed.leaked_pids
    assert re.search(r"rank 1 \(pid \d+ on \S+\) exited.*: killed by signal 9", completed.output), completed.output
    # The last complete checkpoint is the one of the step before.
    assert len(resumed) == len(uninterrupted) - (step - 1), f"killed at step {step}: {completed.output}"
    assert resumed == pytest.approx(uninterrupted[step - 1 :], abs=1e-6)
    record_property("kills", 1)
