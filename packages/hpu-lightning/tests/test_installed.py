"""What an installation of hpu-lightning brings."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpu_core import plugins


def test_strategies_precision_and_profiler_are_installed() -> None:
    """By the names that a Trainer takes."""
    installed = plugins.installed()

    assert {"hpu-ddp", "hpu-fsdp", "hpu-precision", "hpu-profiler"} <= installed.keys()
    assert "hpu_parallel" in installed["hpu-ddp"].strategies
    assert "hpu_fsdp" in installed["hpu-fsdp"].strategies
    assert "hpu" in installed["hpu-profiler"].profilers


@pytest.mark.parametrize("command", ["hpu-info", "hpu-doctor"])
def test_commands_are_installed(command: str) -> None:
    path = Path(sys.executable).with_name(command)

    assert "usage" in subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout.lower()
