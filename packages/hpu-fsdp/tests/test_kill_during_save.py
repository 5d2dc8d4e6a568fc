"""A rank that is killed while it writes a sharded checkpoint leaves the last good one."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import filesystem

from hpu_sim.testing import Program, machine_env

PROGRAM = Path(__file__).parent / "programs" / "kill_during_save.py"
RUNS = 20


def _run(tmp_path: Path, kill_step: int, kind: str) -> tuple[Any, dict[str, Any]]:
    """Kill a training at a step; return its end, and the checkpoint that it has left."""
    path = tmp_path / "last.ckpt"
    command = [sys.executable, str(PROGRAM), str(path), str(kill_step), kind]
    with Program(command, machine_env(2, tmp_path / "cards"), tmp_path) as program:
        done = program.wait(240)
    return done, torch.load(path / "meta.pt", weights_only=False)


def _check(tmp_path: Path, kill_step: int, kind: str) -> None:
    done, saved = _run(tmp_path, kill_step, kind)

    assert done.code != 0, done.output
    assert not done.leaked_pids
    assert saved["global_step"] == kill_step - 1, done.output


def test_killed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    _check(tmp_path, 3, "sync")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("run", range(RUNS))
def test_killed_save_never_shadows_the_last_checkpoint(run: int, kind: str, tmp_path: Path) -> None:
    """The step varies from 2 to 5."""
    _check(tmp_path, 2 + run % 4, kind)


def test_torch_has_the_private_name() -> None:
    """The program replaces it."""
    assert callable(filesystem._write_item)
