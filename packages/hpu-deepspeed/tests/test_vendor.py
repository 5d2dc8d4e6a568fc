"""DeepSpeed as it is found."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_core import bridge
from hpu_deepspeed import _vendor
from hpu_sim.testing import machine_env

from .modules import HAS_CPU


@pytest.fixture(autouse=True)
def _anew() -> Any:
    """The warning is given once per process, and here once per test."""
    _vendor.check_release.cache_clear()
    yield
    _vendor.check_release.cache_clear()


def _installed(monkeypatch: pytest.MonkeyPatch, deepspeed: str | None, plugin: str | None = None) -> None:
    """Have another DeepSpeed, and another bridge, be installed."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name != "deepspeed":
            return real(name)
        if deepspeed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return deepspeed

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(bridge, "plugin_version", lambda: plugin)


def test_without_deepspeed_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's own, or Intel's fork."""
    _installed(monkeypatch, None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install deepspeed, or .* Intel's fork"):
        _vendor.load()


def test_an_old_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has never heard of Gaudi."""
    _installed(monkeypatch, "0.8.3")

    with pytest.raises(ImportError, match=r"needs DeepSpeed 0\.9\.4 or newer, found 0\.8\.3"):
        _vendor.load()


def test_an_own_release_before_gaudi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are on the package index, while Intel's fork of the same version knew it."""
    _installed(monkeypatch, "0.12.6")

    with pytest.raises(ImportError, match=r"DeepSpeed 0\.12\.6 cannot train on Gaudi: .* 0\.13\.0 is the first"):
        _vendor.load()


@pytest.mark.parametrize("version", ["0.9.4+hpu.synapse.v1.11.0", "0.12.4+ca649af", "0.13.0"])
def test_the_fork_before_that_is_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what somebody has built of it, nor the first of the others."""
    _installed(monkeypatch, version)

    _vendor.check_version()


def test_the_pair_that_was_published_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork that belongs to the release is taken without a word."""
    _installed(monkeypatch, "0.16.1+hpu.synapse.v1.22.0", "1.22.0.740")

    _vendor.check_release()


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
def test_another_pair_is_a_warning(deepspeed: str, plugin: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names both, and refuses nothing."""
    _installed(monkeypatch, deepspeed, plugin)

    with pytest.warns(UserWarning, match=text):
        _vendor.check_release()


def test_the_warning_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many strategies are made."""
    _installed(monkeypatch, "0.19.8", "1.24.1.482")

    with pytest.warns(UserWarning, match="has not been tested"):
        _vendor.check_release()

    # Warnings are errors here.
    _vendor.check_release()


def _output(program: str, cards: Path) -> str:
    """Return what a program prints on a machine of its own with one card; it must succeed."""
    command = [sys.executable, "-W", "ignore", "-c", program]
    variables = machine_env(1, cards)
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=240).stdout


_FOR_THE_CPU = """
import os, sys
os.environ["DS_ACCELERATOR"] = "cpu"
# An older DeepSpeed tries it on a GPU as soon as it is imported.
sys.modules["triton"] = None
import deepspeed
from hpu_deepspeed import HPUDeepSpeedStrategy
try:
    HPUDeepSpeedStrategy()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(not HAS_CPU, reason="Requires: DeepSpeed 0.14.4, whose CPU is one of stock torch")
def test_a_deepspeed_for_another_accelerator_is_refused(gaudi: None, tmp_path: Path) -> None:
    """It has chosen for the whole process, so the error says what to do before the next."""
    output = _output(_FOR_THE_CPU, tmp_path)

    assert "has chosen the accelerator 'cpu' for the whole process: set DS_ACCELERATOR=hpu" in output


_SWITCHES = """
import os, torch
before = dict(os.environ)
torch.use_deterministic_algorithms({enabled}, warn_only=True)
from hpu_deepspeed import HPUDeepSpeedStrategy
HPUDeepSpeedStrategy()
import deepspeed
print(deepspeed.accelerator.get_accelerator().device_name())
print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
# Torch before 2.2 fills no memory.
switches = getattr(torch.utils, "deterministic", None)
print(switches is None or switches.fill_uninitialized_memory, "DS_ACCELERATOR" in os.environ)
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_the_switches_are_the_users(enabled: bool, gaudi: None, tmp_path: Path) -> None:
    """DeepSpeed is for Gaudi, and torch's switches and the variable are as they were."""
    output = _output(_SWITCHES.format(enabled=enabled), tmp_path)

    assert output.splitlines()[-3:] == ["hpu", f"{enabled} True", "True False"]


class _Size(int):
    """As DeepSpeed's, whose text is another one."""


def _options() -> Any:
    """Return a model that has an option with a default like DeepSpeed's."""
    pydantic: Any = pytest.importorskip("pydantic", minversion="2.0")

    class Options(pydantic.BaseModel):  # type: ignore[misc] # Looked up at run time, so that its type is unknown.
        model_config = pydantic.ConfigDict(protected_namespaces=(), validate_default=True)
        model_persistence_threshold: int = _Size(sys.maxsize)

    return Options


@pytest.mark.parametrize(("pydantic", "kind"), [("2.0.3", int), ("2.2.1", int), ("2.3.0", _Size), ("1.10.24", _Size)])
def test_pydantic_is_given_a_default_that_it_takes(pydantic: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plain integer, where it refuses another one; elsewhere it stays as it is."""
    options = _options()
    monkeypatch.setattr(importlib.metadata, "version", {"pydantic": pydantic}.__getitem__)

    _vendor.take_own_default(options)

    assert type(options.model_fields["model_persistence_threshold"].default) is kind


def test_the_default_remains_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is made afterwards has it."""
    options = _options()
    monkeypatch.setattr(importlib.metadata, "version", {"pydantic": "2.1.1"}.__getitem__)

    _vendor.take_own_default(options)

    assert options().model_persistence_threshold == sys.maxsize


_TRITON = """
import sys, types
from hpu_deepspeed import HPUDeepSpeedStrategy
sys.modules["triton"] = triton = types.ModuleType("triton")
HPUDeepSpeedStrategy()
import deepspeed
print(deepspeed.HAS_TRITON, sys.modules["triton"] is triton)
"""


def test_triton_is_not_for_gaudi(gaudi: None, tmp_path: Path) -> None:
    """Where it is installed, as with torch for CUDA, an older DeepSpeed would need a GPU to be imported."""
    output = _output(_TRITON, tmp_path)

    assert output.splitlines()[-1] == "False True"


_INDEX = """
from hpu_deepspeed import HPUDeepSpeedStrategy
HPUDeepSpeedStrategy()
import deepspeed
print(deepspeed.accelerator.get_accelerator().device_name(1))
"""


def test_a_card_has_no_index(gaudi: None, tmp_path: Path) -> None:
    """Though DeepSpeed before 0.14.5 would name it by the rank, and no tensor can be made there."""
    output = _output(_INDEX, tmp_path)

    assert output.splitlines()[-1] == "hpu"
