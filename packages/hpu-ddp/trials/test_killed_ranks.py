"""Ranks that are killed in the middle of a training, twenty times, and what is left of it each time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_sim.testing import CompletedProgram, Program, machine_env

_PROGRAM = Path(__file__).parents[1] / "tests" / "programs" / "train.py"
_RANKS = 2
_RUNS = 20
_EPOCHS = 3
_STEPS = 18
# Within which a training that has lost a rank has to have ended.
_LIMIT = 30


def _train(folder: Path, *arguments: str) -> CompletedProgram:
    """Train, from the last checkpoint if there is one."""
    command = [sys.executable, str(_PROGRAM), "--epochs", str(_EPOCHS), "--checkpoints", str(folder), *arguments]
    with Program(command, machine_env(_RANKS, folder / "cards")) as running:
        return running.wait(2 * _LIMIT)


def _reports(done: CompletedProgram) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the ranks of a training report that nothing happens to."""
    return _reports(_train(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("run", range(_RUNS))
def test_a_killed_rank_costs_no_training(run: int, undisturbed: list[dict[str, Any]], tmp_path: Path) -> None:
    """All end soon and leave no process behind, and what is resumed reaches what an undisturbed training reaches."""
    # After the first epoch, so that there is a checkpoint: each step of the others in turn, the last one too.
    first = _STEPS // _EPOCHS
    batch = first + run % (_STEPS - first)
    killed = _train(tmp_path, "--fail", "killed", "--rank", str(run % _RANKS), "--batch", str(batch))
    resumed = _train(tmp_path)

    assert killed.code != 0
    assert killed.leaked_pids == ()
    assert killed.seconds < _LIMIT, killed.output
    assert resumed.code == 0, resumed.output
    reached = _reports(resumed)
    assert {report["weights"] for report in reached} == {report["weights"] for report in undisturbed}
    assert {report["steps"] for report in reached} == {_STEPS}
