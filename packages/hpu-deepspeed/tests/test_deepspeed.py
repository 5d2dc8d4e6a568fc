"""Tests of DeepSpeed's import, version checks and patches."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_deepspeed import _deepspeed
from hpu_testing import machine_env

from .modules import SUPPORTS_CPU


def _fake_version(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """Fake the installed version of DeepSpeed; None means not installed."""

    def find(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", find)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (None, r"pip install deepspeed, or .* Intel's fork"),
        ("0.8.3+hpu", r"needs DeepSpeed 0\.9\.4 or newer, found 0\.8\.3"),
        ("0.12.6", r"needs DeepSpeed 0\.13\.0 or newer, found 0\.12\.6: .* Intel's fork"),
    ],
    ids=["missing", "too old", "upstream without Gaudi"],
)
def test_deepspeed_without_gaudi_is_rejected(version: str | None, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_version(monkeypatch, version)

    with pytest.raises(ImportError, match=text):
        _deepspeed.load()


@pytest.mark.parametrize("version", ["0.9.4+hpu.synapse.v1.11.0", "0.12.4+ca649af", "0.13.0"])
def test_fork_and_first_supported_release_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are builds of the fork from source, and of other versions than numbers."""
    _fake_version(monkeypatch, version)

    _deepspeed.check_version()


def _output(program: str, runtime_dir: Path) -> str:
    """Run a program on a simulated machine with one device and return its stdout."""
    # The fork server's interpreter has read this variable already.
    command = [sys.executable, "-c", f"import torch, warnings; warnings.simplefilter('ignore')\n{program}"]
    env = machine_env(1, runtime_dir)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=240).stdout


_CPU_ACCELERATOR = """
import os, sys
os.environ["DS_ACCELERATOR"] = "cpu"
# Older DeepSpeed probes for a GPU with triton on import.
sys.modules["triton"] = None
import deepspeed
from hpu_deepspeed import HPUDeepSpeedStrategy
try:
    HPUDeepSpeedStrategy()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.usefixtures("forks", "gaudi")
@pytest.mark.skipif(not SUPPORTS_CPU, reason="Requires: DeepSpeed 0.14.4, which supports the CPU with stock torch")
def test_deepspeed_for_another_accelerator_is_rejected(tmp_path: Path) -> None:
    output = _output(_CPU_ACCELERATOR, tmp_path)

    assert "accelerator must be 'hpu', got 'cpu'" in output
    assert "set DS_ACCELERATOR=hpu before the program starts" in output


_IMPORT = """
import os, sys, types
torch.use_deterministic_algorithms(True, warn_only=True)
from hpu_deepspeed import HPUDeepSpeedStrategy
sys.modules["triton"] = triton = types.ModuleType("triton")
HPUDeepSpeedStrategy()
import deepspeed
print("accelerator", *(deepspeed.accelerator.get_accelerator().device_name(index) for index in (None, 1)))
print("deterministic", torch.are_deterministic_algorithms_enabled())
print("warnings only", torch.is_deterministic_algorithms_warn_only_enabled())
# torch before 2.2 does not have the module.
deterministic = getattr(torch.utils, "deterministic", None)
print("fill", deterministic is None or deterministic.fill_uninitialized_memory)
print("variable", "DS_ACCELERATOR" in os.environ)
print("triton", deepspeed.HAS_TRITON, sys.modules["triton"] is triton)
"""


@pytest.mark.usefixtures("forks", "gaudi")
def test_import_of_deepspeed(tmp_path: Path) -> None:
    """It changes no setting, finds no triton, and names a device without an index.

    Older DeepSpeed needs a GPU on import where triton is installed, and appends the rank to the name before 0.14.5: no
    tensor can be created on "hpu:1". Tests of training show that deterministic algorithms stay disabled as well.
    """
    lines = _output(_IMPORT, tmp_path).splitlines()[-6:]

    assert lines == [
        "accelerator hpu hpu",
        "deterministic True",
        "warnings only True",
        "fill True",
        "variable False",
        "triton False True",
    ]
