"""Runs tests/simulated on a simulated device in eager mode."""

import sys
from pathlib import Path

import pytest

from hpu_compile import _torch
from hpu_testing import Program, machine_env

_FOLDER = Path(__file__).parent / "simulated"


# The first use on a machine compiles the simulator, which takes half a minute or more.
@pytest.mark.timeout(900)
@pytest.mark.skipif(not _torch.supports_regions(), reason="Requires: torch 2.5")
def test_on_simulator(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    environment = machine_env(1, tmp_path / "locks", PT_HPU_LAZY_MODE="0")
    with Program([*command, str(_FOLDER)], environment, preloaded=True) as program:
        done = program.wait(800)

    assert done.code == 0, done.output
