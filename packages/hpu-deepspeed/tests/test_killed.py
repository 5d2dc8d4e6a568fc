"""A training that is killed while it saves goes on from the last whole checkpoint as if it had not been."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_sim.testing import Program

from .conftest import OnRanks
from .modules import Classifier, loader, numbers, trainer

# Of one batch each: Lightning resumes an epoch with the first of its batches, whichever comes next.
EPOCHS = 8


def _train(stage: int, path: str | None) -> list[float]:
    module = Classifier()
    run = trainer(HPUDeepSpeedStrategy(stage=stage), max_epochs=EPOCHS)
    run.fit(module, loader(run.global_rank, 2, 1), ckpt_path=path)
    return numbers(module.losses)


def _both(stage: int, path: str) -> tuple[list[float], list[float]]:
    return _train(stage, None), _train(stage, path)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_killed_training_resumes(
    stage: int, program: Callable[..., Program], on_ranks: OnRanks, tmp_path: Path
) -> None:
    """One rank is killed with half a checkpoint written, at a random step; the losses after it are the undisturbed."""
    step = random.randint(2, EPOCHS - 1)  # noqa: S311 - any step will do.
    path = tmp_path / "checkpoints" / "last.ckpt"
    with program("killed.py", str(stage), str(path), str(step)) as running:
        done: Any = running.wait(240)

    (whole, resumed), _ = on_ranks(_both, stage, str(path))

    assert done.code != 0, done.output
    assert not done.leaked_pids
    # What was whole is of the step before.
    assert len(resumed) == len(whole) - (step - 1), f"killed at step {step}: {done.output}"
    assert resumed == pytest.approx(whole[step - 1 :], abs=1e-6)
