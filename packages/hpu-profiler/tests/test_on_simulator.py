"""Runs the tests in tests/simulated in a process of their own for each way in which a bridge takes part in profiles."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "simulated"


# The first use on a machine compiles the device, which takes half a minute; on old processors more.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("release", "lazy"), [("1.19.0", "1"), ("1.24.1", "0")], ids=["the bridge's enum, lazy", "torch's enum, eager"]
)
def test_on_simulator(release: str, lazy: str, tmp_path: Path) -> None:
    """Everything in tests/simulated holds on a simulated card of this release."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HPU_SIM_")}
    environment.update(
        HPU_PROFILER_SIMULATE=release,
        HPU_SIM_RUNTIME_DIR=str(tmp_path / "cards"),
        PT_HPU_LAZY_MODE=lazy,
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
