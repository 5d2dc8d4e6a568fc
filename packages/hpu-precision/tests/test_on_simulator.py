"""Run the tests in tests/simulated on simulated devices of each release, each in its own process."""

import os
import sys
from pathlib import Path

import pytest

from hpu_testing import Program, machine_env

_DIRECTORY = Path(__file__).parent / "simulated"
# A release with HMP, one without, and that of the matrix row under test.
_RELEASES = sorted({"1.11.0", "1.24.1", os.environ.get("HPU_SIM_RELEASE", "1.24.1")})
_TIMEOUT = 900  # The first use compiles the simulated device, which takes half a minute or more.


@pytest.mark.timeout(_TIMEOUT)
@pytest.mark.parametrize("marker", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
@pytest.mark.parametrize("release", _RELEASES)
def test_on_simulator(release: str, marker: str, tmp_path: Path) -> None:
    env = machine_env(1, tmp_path / "runtime", HPU_SIM_RELEASE=release, HPU_PRECISION_SIMULATED="1")
    options = ["-q", "-p", "no:cacheprovider", "-m", marker, f"--basetemp={tmp_path / 'tests'}"]
    with Program([sys.executable, "-m", "pytest", *options, str(_DIRECTORY)], env, preloaded=True) as program:
        completed = program.wait(_TIMEOUT)

    assert completed.code == 0, completed.output
