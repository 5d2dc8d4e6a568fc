"""Tests of the data that hpu-info collects."""

import platform
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from packaging.version import Version

from hpu_core import frameworks
from hpu_core.__about__ import __version__
from hpu_core.discovery import HPUDevice, ScanResult
from hpu_core.discovery._synapse import SynapseVersion
from hpu_core.frameworks import Framework
from hpu_core.info import _collect
from hpu_core.info._collect import BridgeInfo, LightningInfo, SystemInfo

MakeCard = Callable[..., HPUDevice]


@dataclass
class _FakeBridge:
    """Bridge with the functions that may be called here; any other call is an AttributeError."""

    loaded: bool = True
    simulated: bool = False
    lazy: bool = False

    def is_installed(self) -> bool:
        return True

    def is_loaded(self) -> bool:
        return self.loaded

    def is_simulated(self) -> bool:
        return self.simulated

    def max_torch_version(self) -> str | None:
        return "2.15" if self.simulated else None

    def is_lazy(self) -> bool:
        if not self.loaded:
            pytest.fail("`is_lazy` would load the bridge")
        return self.lazy

    def plugin_version(self) -> str | None:
        return "1.24.1.482"


def _collect_info(*devices: HPUDevice, bridge: _FakeBridge | None = None, torch_error: str | None = None) -> SystemInfo:
    return _collect.collect(
        load_torch=lambda: torch_error,
        scan=lambda: ScanResult(devices=devices),
        bridge=bridge or _FakeBridge(),
        synapse=lambda plugin, devices: SynapseVersion(Version(plugin or "0"), f"{len(devices)} cards"),
    )


@pytest.fixture(autouse=True)
def every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset HABANA_VISIBLE_MODULES."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)


def test_versions() -> None:
    system = _collect_info()

    assert (system.hpu_core, system.python) == (__version__, platform.python_version())
    assert system.torch is not None
    assert system.torch_error is None


def test_broken_torch() -> None:
    assert _collect_info(torch_error="ImportError: libtorch.so").torch_error == "ImportError: libtorch.so"


def test_devices(make_card: MakeCard) -> None:
    system = _collect_info(make_card(0), make_card(1, status="In reset"))

    assert (len(system.devices), system.usable) == (2, 1)


def test_visible_modules(make_card: MakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")
    system = _collect_info(make_card(0), make_card(1))

    assert (system.visible_modules, system.usable, system.visible_modules_error) == ("1", 1, None)


def test_invalid_visible_modules(make_card: MakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of usable devices is unknown."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,x")
    system = _collect_info(make_card(0))

    assert (system.visible_modules, system.usable) == ("0,x", None)
    assert system.visible_modules_error is not None
    assert "'0,x'" in system.visible_modules_error


@pytest.mark.parametrize(("lazy", "mode"), [(True, "lazy"), (False, "eager")])
def test_mode_of_loaded_bridge(lazy: bool, mode: str) -> None:
    assert _collect_info(bridge=_FakeBridge(lazy=lazy)).bridge == BridgeInfo(
        installed=True,
        loaded=True,
        version="1.24.1.482",
        mode="lazy" if mode == "lazy" else "eager",
    )


def test_bridge_is_not_loaded() -> None:
    system = _collect_info(bridge=_FakeBridge(loaded=False)).bridge

    assert (system.loaded, system.mode) == (False, None)


def test_failing_bridge_has_no_mode() -> None:
    class Failing(_FakeBridge):
        def is_lazy(self) -> bool:
            raise ImportError("half installed")

    assert _collect_info(bridge=Failing()).bridge.mode is None


def test_simulated() -> None:
    bridge = _collect_info(bridge=_FakeBridge(simulated=True)).bridge

    assert bridge.simulated is True
    assert bridge.max_torch_version == "2.15"


def test_synapse_release_gets_bridge_version_and_devices(make_card: MakeCard) -> None:
    assert _collect_info(make_card()).synapse == SynapseVersion(Version("1.24.1.482"), "1 cards")


def test_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "decide", lambda: Framework("lightning", Version("2.5.5")))
    system = _collect_info().lightning

    assert (system.used, system.installed["lightning"], system.error) == ("lightning", "2.5.5", None)


@pytest.mark.parametrize("error", [ModuleNotFoundError("none is installed"), ImportError("compromised")])
def test_no_lightning(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> Framework:
        raise error

    monkeypatch.setattr(frameworks, "decide", fail)
    monkeypatch.setattr(_collect, "_distribution_version", lambda distribution: None)

    assert _collect_info().lightning == LightningInfo(error=str(error))


def test_missing_distribution_has_no_version() -> None:
    assert _collect._distribution_version("a-distribution-that-nobody-has") is None


def test_collect_on_this_machine() -> None:
    system = _collect.collect()

    assert [source.source for source in system.sources][:1] == ["bridge"]
