"""Tests of DeepSpeed's import, version checks and patches."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_core import bridge
from hpu_deepspeed import _deepspeed
from hpu_testing import machine_env

from .modules import SUPPORTS_CPU


@pytest.fixture(autouse=True)
def _clear_cache() -> Any:
    """Reset the warning that is emitted once per process."""
    _deepspeed.warn_if_untested.cache_clear()
    yield
    _deepspeed.warn_if_untested.cache_clear()


def _fake_versions(monkeypatch: pytest.MonkeyPatch, deepspeed: str | None, plugin: str | None = None) -> None:
    """Fake the installed versions of DeepSpeed and the bridge; None means not installed."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name != "deepspeed":
            return real(name)
        if deepspeed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return deepspeed

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(bridge, "plugin_version", lambda: plugin)


def test_missing_deepspeed_error_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the upstream package and Intel's fork."""
    _fake_versions(monkeypatch, None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install deepspeed, or .* Intel's fork"):
        _deepspeed.load()


def test_too_old_deepspeed_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_versions(monkeypatch, "0.8.3")

    with pytest.raises(ImportError, match=r"needs DeepSpeed 0\.9\.4 or newer, found 0\.8\.3"):
        _deepspeed.load()


def test_upstream_release_without_gaudi_support_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's fork of the same version supports Gaudi and is accepted."""
    _fake_versions(monkeypatch, "0.12.6")

    with pytest.raises(ImportError, match=r"DeepSpeed 0\.12\.6 does not support Gaudi: upstream .* from 0\.13\.0 on"):
        _deepspeed.load()


@pytest.mark.parametrize("version", ["0.9.4+hpu.synapse.v1.11.0", "0.12.4+ca649af", "0.13.0"])
def test_fork_and_first_supported_release_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are builds of the fork from source."""
    _fake_versions(monkeypatch, version)

    _deepspeed.check_version()


def test_published_pair_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork that was published with the SynapseAI release is the tested one."""
    _fake_versions(monkeypatch, "0.16.1+hpu.synapse.v1.22.0", "1.22.0.740")

    _deepspeed.warn_if_untested()


@pytest.mark.parametrize(
    ("deepspeed", "plugin", "text"),
    [
        (
            "0.16.1+hpu.synapse.v1.20.0",
            "1.22.0.740",
            r"v1\.20\.0 has not been tested with SynapseAI 1\.22\.0: the release was published with .*v1\.22\.0",
        ),
        ("0.19.8", "1.24.1.482", r"DeepSpeed 0\.19\.8 has not been tested with SynapseAI 1\.24\.1: no fork is known"),
        ("0.19.8", "9.9.9", r"DeepSpeed 0\.19\.8 has not been tested with SynapseAI 9\.9\.9: no fork is known"),
    ],
)
def test_other_pairs_warn(deepspeed: str, plugin: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning names both versions."""
    _fake_versions(monkeypatch, deepspeed, plugin)

    with pytest.warns(UserWarning, match=text):
        _deepspeed.warn_if_untested()


def test_warning_is_emitted_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_versions(monkeypatch, "0.19.8", "1.24.1.482")

    with pytest.warns(UserWarning, match="has not been tested"):
        _deepspeed.warn_if_untested()

    # A second warning would be an error here.
    _deepspeed.warn_if_untested()


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
