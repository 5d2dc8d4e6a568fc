"""A rank that is killed while it writes a sharded checkpoint leaves the last good one."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import filesystem

from hpu_testing import Program, machine_env

PROGRAM = Path(__file__).parent / "programs" / "kill_during_save.py"
RUNS = 20


def _run(tmp_path: Path, runs: int, kind: str) -> list[dict[str, Any]]:
    """Kill a rank in each training; return the results that the program prints."""
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(runs), kind]
    environment = machine_env(2, tmp_path / "cards", PT_HPU_LAZY_MODE="0")
    with Program(command, environment, tmp_path, preloaded=True) as program:
        done = program.wait(500)
    assert done.code == 0, done.output
    assert not done.leaked_pids
    results: list[dict[str, Any]] = json.loads(done.output.splitlines()[-1])
    return results


def _check(result: dict[str, Any]) -> None:
    """Check that one rank was killed, the other failed, and the previous checkpoint is complete, beside a file."""
    step, rank, _ = result["kill"]
    path = Path(result["path"])
    assert result["codes"][rank] == -signal.SIGKILL, result
    assert result["codes"][1 - rank] not in {0, -signal.SIGKILL}, result
    assert torch.load(path / "meta.pt", weights_only=False)["global_step"] == step - 1, result
    assert (path / "tokenizer.json").exists()
    stored = filesystem.FileSystemReader(path).read_metadata().storage_data
    assert stored
    for item in stored.values():
        assert item.offset + item.length <= (path / item.relative_path).stat().st_size, result


@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_killed_save_leaves_the_last_checkpoint(kind: str, tmp_path: Path) -> None:
    for result in _run(tmp_path, 1, kind):
        _check(result)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_killed_save_never_shadows_the_last_checkpoint(kind: str, tmp_path: Path) -> None:
    """The step, the rank and the number of tensors that it has written vary."""
    results = _run(tmp_path, RUNS, kind)

    assert len(results) == RUNS
    for result in results:
        _check(result)


def test_torch_has_the_private_name() -> None:
    """The program replaces it."""
    assert callable(filesystem._write_item)
