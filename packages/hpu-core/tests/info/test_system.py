"""Tests of the data that hpu-info collects."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Literal, Protocol

import pytest
from packaging.version import Version

from hpu_core import discovery, frameworks
from hpu_core.discovery import HPUDevice, ScanResult, SynapseVersion
from hpu_core.frameworks import Framework
from hpu_core.info import BridgeInfo, LightningInfo, SystemInfo, system

MakeCard = Callable[..., HPUDevice]


# The functions of the bridge that may be called here; none opens a device.
_LOADED: dict[str, Callable[[], object]] = {
    "is_installed": lambda: True,
    "is_loaded": lambda: True,
    "is_simulated": lambda: False,
    "is_lazy": lambda: False,
    "plugin_version": lambda: "1.24.1.482",
}


class _Collect(Protocol):
    def __call__(
        self, *devices: HPUDevice, torch_error: str | None = None, **bridge: Callable[[], object]
    ) -> SystemInfo: ...


@pytest.fixture
def collect_info(monkeypatch: pytest.MonkeyPatch) -> _Collect:
    """Collect on a machine with these devices, and a bridge whose functions differ as given."""

    def run(*devices: HPUDevice, torch_error: str | None = None, **bridge: Callable[[], object]) -> SystemInfo:
        monkeypatch.setattr(system, "import_torch", lambda: torch_error)
        monkeypatch.setattr(system, "bridge", SimpleNamespace(**{**_LOADED, **bridge}))
        monkeypatch.setattr(discovery, "bridge", SimpleNamespace(**{**_LOADED, **bridge}))
        monkeypatch.setattr(discovery, "scan", lambda: ScanResult(devices=devices))
        return system.collect()

    return run


@pytest.fixture(autouse=True)
def every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset HABANA_VISIBLE_MODULES."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)


def test_devices(collect_info: _Collect, make_card: MakeCard) -> None:
    info = collect_info(make_card(0), make_card(1, status="In reset"))

    assert (len(info.devices), info.usable) == (2, 1)


def test_invalid_visible_modules(collect_info: _Collect, make_card: MakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of usable devices is unknown."""
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,x")
    info = collect_info(make_card(0))

    assert (info.visible_modules, info.usable) == ("0,x", None)
    assert info.visible_modules_error is not None
    assert "'0,x'" in info.visible_modules_error


@pytest.mark.parametrize(("lazy", "mode"), [(True, "lazy"), (False, "eager")])
def test_mode_of_loaded_bridge(collect_info: _Collect, lazy: bool, mode: Literal["lazy", "eager"]) -> None:
    assert collect_info(is_lazy=lambda: lazy).bridge == BridgeInfo(
        installed=True, loaded=True, version="1.24.1.482", mode=mode
    )


def test_bridge_is_not_loaded(collect_info: _Collect) -> None:
    """`is_lazy` would load it."""
    info = collect_info(is_loaded=lambda: False, is_lazy=lambda: pytest.fail("loaded the bridge")).bridge

    assert (info.loaded, info.mode) == (False, None)


def test_failing_bridge_has_no_mode(collect_info: _Collect) -> None:
    def fail() -> bool:
        raise ImportError("half installed")

    assert collect_info(is_lazy=fail).bridge.mode is None


def test_synapse_release_is_that_of_the_bridge(collect_info: _Collect, make_card: MakeCard) -> None:
    assert collect_info(make_card()).synapse == SynapseVersion(Version("1.24.1.482"), "habana-torch-plugin")


@pytest.mark.parametrize("error", [ModuleNotFoundError("none is installed"), ImportError("compromised")])
def test_no_lightning(collect_info: _Collect, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> Framework:
        raise error

    monkeypatch.setattr(frameworks, "decide", fail)
    monkeypatch.setattr(system, "_distribution_version", lambda distribution: None)

    assert collect_info().lightning == LightningInfo(error=str(error))


def test_missing_distribution_has_no_version() -> None:
    assert system._distribution_version("a-distribution-that-nobody-has") is None
