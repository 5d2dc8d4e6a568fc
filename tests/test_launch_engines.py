"""Tests of the commands that `hpu-launch` prints, with the real engines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN = Path(sys.executable).parent
SCRIPT = str(Path(__file__).parent.parent / "tools" / "demo.py")


def _train(command: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """Return each rank with a checksum of its weights."""
    variables = {"HPU_SIM_DEVICES": "2", "HPU_SIM_MACHINE": folder.name, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, cwd=folder)

    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r"rank (\d) of .+? weights ([0-9a-f]{12})", done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torchrun", "mpirun"])
def test_ranks_train_as_without_an_engine(engine: str, tmp_path: Path) -> None:
    if shutil.which(engine, path=f"{BIN}:{os.environ['PATH']}") is None:
        pytest.skip(f"Requires: {engine}")
    launch = [str(BIN / "hpu-launch"), "--engine", engine, "--devices", "2", "--port", str(free_port()), "--run"]
    expected = _train([sys.executable, SCRIPT], tmp_path)

    assert len(expected) == 2
    assert _train([*launch, SCRIPT], tmp_path) == expected
