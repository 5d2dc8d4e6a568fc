"""Runs the tests in tests/on_device on a simulated device of two releases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(("release", "lazy"), [pytest.param("1.19.0", "1", marks=pytest.mark.slow), ("1.24.1", "0")])
def test_profiler_works_on_a_device(release: str, lazy: str, tmp_path: Path) -> None:
    """The bridge replaces torch's profiler classes up to SynapseAI 1.19."""
    environment = {
        **os.environ,
        "HPU_SIM_RUNTIME_DIR": str(tmp_path / "cards"),
        "PT_HPU_LAZY_MODE": lazy,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    simulator = [str(Path(sys.executable).with_name("hpu-sim")), "run", "--quiet", "--release", release]
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    folder = str(Path(__file__).parent / "on_device")
    result = subprocess.run([*simulator, *tests, folder], env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
