"""Runs the tests in tests/simulated in a process of their own for each mode of the device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "simulated"


# The first use on a machine compiles the device, which takes half a minute; on old processors more.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_on_simulator(mode: str, tmp_path: Path) -> None:
    """Everything in tests/simulated holds on a simulated card in this mode."""
    # The release of a row of the matrix is played here, too, and the device that was compiled for it is used.
    kept = {"HPU_SIM_CACHE", "HPU_SIM_RELEASE"}
    environment = {name: value for name, value in os.environ.items() if name in kept or not name.startswith("HPU_SIM_")}
    environment.update(
        HPU_CORE_SIMULATE=mode, HPU_SIM_RUNTIME_DIR=str(tmp_path / "cards"), PYTHONPATH=os.pathsep.join(sys.path)
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    done = subprocess.run(
        [*command, str(_FOLDER)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
