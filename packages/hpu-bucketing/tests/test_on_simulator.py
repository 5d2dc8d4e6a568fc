"""Runs tests/simulated on a simulated device, in lazy mode and in eager mode."""

import sys
from pathlib import Path

import pytest

from hpu_testing import Program, machine_env

_FOLDER = Path(__file__).parent / "simulated"


# The first use on a machine compiles the simulator, which takes half a minute or more.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "lazy"), [("lazy", "1"), ("eager", "0")])
def test_on_simulator(mode: str, lazy: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    environment = machine_env(1, tmp_path / "locks", PT_HPU_LAZY_MODE=lazy)
    with Program([*command, str(_FOLDER / f"test_{mode}.py")], environment, preloaded=True) as program:
        done = program.wait(800)

    assert done.code == 0, done.output
