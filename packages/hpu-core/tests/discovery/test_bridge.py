"""Tests of the devices that a loaded bridge counts."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hpu_core.discovery import HPUDevice, _bridge

_GIB = 1024**3


@dataclass
class _FakeBridge:
    """Bridge with the functions that discovery may call; any other call is an AttributeError."""

    loaded: bool = True
    simulated: bool = False
    count: int = 2
    name: str = "GAUDI3"

    def is_loaded(self) -> bool:
        return self.loaded

    def is_simulated(self) -> bool:
        return self.simulated

    def device_count(self) -> int:
        return self.count

    def generation(self) -> str:
        return self.name


def test_devices_of_loaded_bridge() -> None:
    """Each counted device is operational and has the properties of its generation."""
    assert _bridge.find(_FakeBridge()).devices == tuple(
        HPUDevice(
            index=index,
            generation="GAUDI3",
            memory_bytes=128 * _GIB,
            memory_source="generation",
            status="Operational",
            source="bridge",
        )
        for index in range(2)
    )


def test_simulated_devices() -> None:
    result = _bridge.find(_FakeBridge(simulated=True, count=1))

    assert [(device.simulated, device.module_id) for device in result.devices] == [(True, 0)]
    assert result.message == "counts 1 simulated card"


def test_bridge_is_not_loaded() -> None:
    result = _bridge.find(_FakeBridge(loaded=False))

    assert (result.devices, result.message) == ((), "not loaded in this process")


@pytest.mark.parametrize("count", [0, -1])
def test_bridge_without_devices(count: int) -> None:
    result = _bridge.find(_FakeBridge(count=count))

    assert (result.devices, result.message) == ((), "loaded, but reports no card")


def test_unknown_generation() -> None:
    """The devices are listed without a generation."""
    assert [device.generation for device in _bridge.find(_FakeBridge(name="GAUDI4")).devices] == [None, None]


def test_generation_fails() -> None:
    """The devices are listed without a generation, which comes from a private function of the bridge."""

    class Failing(_FakeBridge):
        def generation(self) -> str:
            raise AttributeError("_get_device_type")

    assert [device.generation for device in _bridge.find(Failing()).devices] == [None, None]


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
