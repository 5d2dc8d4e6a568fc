"""Runs the tests in tests/simulated in a process of their own for each release."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "simulated"
# One release with HMP, one without, and that of a row of the matrix.
_RELEASES = sorted({"1.11.0", "1.24.1", os.environ.get("HPU_SIM_RELEASE", "1.24.1")})


# The first use on a machine compiles the device, which takes half a minute; on old processors more.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", _RELEASES)
def test_on_simulator(release: str, tmp_path: Path) -> None:
    """Everything in tests/simulated holds on a simulated card of this release."""
    environment = {
        name: value for name, value in os.environ.items() if name == "HPU_SIM_CACHE" or not name.startswith("HPU_SIM_")
    }
    environment.update(
        HPU_PRECISION_SIMULATE=release,
        HPU_SIM_RUNTIME_DIR=str(tmp_path / "cards"),
        PYTHONPATH=os.pathsep.join(sys.path),
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
