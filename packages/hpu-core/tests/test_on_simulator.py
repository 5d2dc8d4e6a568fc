"""Runs tests/simulated on simulated devices in eager mode, and what depends on the mode in lazy mode."""

import sys
from pathlib import Path

import pytest

from hpu_testing import Program, machine_env

_FOLDER = Path(__file__).parent / "simulated"
_IN_LAZY_MODE = ("test_graphs.py", "test_cpu_pickle.py", "test_training.py::test_losses_equal_those_on_cpu")


# The first use on a machine compiles the simulator, which takes half a minute or more.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("lazy", "tests"), [("1", _IN_LAZY_MODE), ("0", ("",))], ids=["lazy", "eager"])
def test_on_simulator(lazy: str, tests: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    # Some tests request two devices.
    environment = machine_env(2, tmp_path / "locks", PT_HPU_LAZY_MODE=lazy)
    with Program([*command, *(f"{_FOLDER}/{each}" for each in tests)], environment, preloaded=True) as program:
        done = program.wait(800)

    assert done.code == 0, done.output
