"""Tests of the devices that a loaded bridge counts."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from hpu_core.discovery import HPUDevice, SourceResult, _bridge

# The functions of the bridge that discovery may call.
_LOADED = {
    "is_loaded": lambda: True,
    "is_simulated": lambda: False,
    "device_count": lambda: 2,
    "generation": lambda: "GAUDI3",
}


def _find(monkeypatch: pytest.MonkeyPatch, **different: Callable[[], object]) -> SourceResult:
    """List the devices of a bridge; any other call is an AttributeError."""
    monkeypatch.setattr(_bridge, "bridge", SimpleNamespace(**{**_LOADED, **different}))
    return _bridge.find()


def test_devices_of_loaded_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counted device is operational and has the properties of its generation."""
    assert _find(monkeypatch).devices == tuple(
        HPUDevice(
            index=index,
            generation="GAUDI3",
            status="Operational",
            source="bridge",
        )
        for index in range(2)
    )


def test_simulated_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _find(monkeypatch, is_simulated=lambda: True, device_count=lambda: 1)

    assert [(device.simulated, device.module_id) for device in result.devices] == [(True, 0)]
    assert result.message == "counts 1 simulated card"


def test_bridge_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _find(monkeypatch, is_loaded=lambda: False)

    assert (result.devices, result.message) == ((), "not loaded in this process")


@pytest.mark.parametrize("count", [0, -1])
def test_bridge_without_devices(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _find(monkeypatch, device_count=lambda: count)

    assert (result.devices, result.message) == ((), "loaded, but reports no card")


def test_unknown_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices are listed without a generation."""
    result = _find(monkeypatch, generation=lambda: "GAUDI4")

    assert [device.generation for device in result.devices] == [None, None]


def test_generation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices are listed without a generation, which comes from a private function of the bridge."""

    def fail() -> str:
        raise AttributeError("_get_device_type")

    result = _find(monkeypatch, generation=fail)

    assert [device.generation for device in result.devices] == [None, None]


@pytest.fixture
def clear_cache() -> Iterator[None]:
    """Forget the result of importing torch before and after the test."""
    _bridge.import_torch.cache_clear()
    yield
    _bridge.import_torch.cache_clear()


@pytest.mark.usefixtures("clear_cache")
def test_failed_import_of_torch_is_cached() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        first = _bridge.import_torch()

    assert first is not None
    assert first.startswith("ModuleNotFoundError: ")
    assert _bridge.import_torch() == first


@pytest.mark.usefixtures("clear_cache")
def test_import_of_torch_succeeds() -> None:
    assert _bridge.import_torch() is None
