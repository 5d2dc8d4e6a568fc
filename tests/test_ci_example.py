"""Test of the suite in examples/ci, run as in a user's CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_testing.fork_server import forks

EXAMPLE = Path(__file__).parent.parent / "examples" / "ci"
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("command", "passed"),
    [
        # Tests of one card, in one process.
        ([str(BIN / "hpu-sim"), "run", "-m", "pytest", "-k", "not two_devices"], 2),
        pytest.param([sys.executable, "-m", "pytest"], 3, marks=pytest.mark.slow),
    ],
)
def test_ci_example_passes_on_the_simulator(command: list[str], passed: int, tmp_path: Path) -> None:
    machine = {name: value for name, value in os.environ.items() if not name.startswith(("HPU_SIM_", "PT_HPU_"))}
    environment = machine | {"HPU_SIM_RUNTIME_DIR": str(tmp_path)}
    command = [*command, "-q", "-p", "no:cacheprovider"]
    with forks():
        result = subprocess.run(command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout
    assert f"{passed} passed" in result.stdout
