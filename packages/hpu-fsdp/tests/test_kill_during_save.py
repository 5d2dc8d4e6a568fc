"""A rank that is killed while it writes a sharded checkpoint leaves the last good one."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.distributed.checkpoint import filesystem

from hpu_testing import Program, machine_env

PROGRAM = Path(__file__).parent / "programs" / "kill_during_save.py"
RUNS = 20

_fsdp2 = pytest.mark.skipif(Version(torch.__version__) < Version("2.7.dev0"), reason="Requires: torch 2.7")


def _run(tmp_path: Path, runs: int, *kinds: str) -> list[dict[str, Any]]:
    """Kill a rank in each training; return the results that the program prints."""
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(runs), *kinds]
    environment = machine_env(2, tmp_path / "cards", PT_HPU_LAZY_MODE="0")
    with Program(command, environment, tmp_path, preloaded=True) as program:
        done = program.wait(800)
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


@pytest.mark.parametrize(
    ("name", "kind", "runs"),
    [
        ("fsdp", "sync", 1),
        *(
            pytest.param(name, kind, RUNS, marks=[pytest.mark.slow, *([_fsdp2] if name == "fsdp2" else [])])
            for name in ("fsdp", "fsdp2")
            for kind in ("sync", "async")
        ),
    ],
)
@pytest.mark.timeout(900)
def test_killed_save_leaves_the_last_checkpoint(
    name: str, kind: str, runs: int, tmp_path: Path, record_property: Callable[[str, int], None]
) -> None:
    """The step, the rank and the number of tensors that it has written vary."""
    results = _run(tmp_path, runs, kind, name)

    assert len(results) == runs
    for result in results:
        _check(result)
    record_property("kills", runs)


def test_torch_has_the_private_name() -> None:
    """The program replaces it."""
    assert callable(filesystem._write_item)
