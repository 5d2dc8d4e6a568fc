"""Tests of the devices that a loaded bridge counts."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hpu_core import bridge, discovery
from hpu_core.discovery import SourceResult, _bridge
from hpu_core.info import collect


def _fail() -> str:
    raise AttributeError("_get_device_type")


# The functions of the bridge that discovery may call.
_LOADED = {
    "is_loaded": lambda: True,
    "is_simulated": lambda: False,
    "device_count": lambda: 2,
    "generation": lambda: "GAUDI3",
}


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SourceResult]:
    """List the devices of a bridge; any other call is an AttributeError."""

    def find(**different: Callable[[], object]) -> SourceResult:
        monkeypatch.setattr(_bridge, "bridge", SimpleNamespace(**{**_LOADED, **different}))
        return _bridge.find()

    return find


@pytest.mark.parametrize(
    ("different", "devices", "message"),
    [
        ({}, [(False, None, "GAUDI3")] * 2, "counts 2 cards"),
        (
            {"is_simulated": lambda: True, "device_count": lambda: 1},
            [(True, 0, "GAUDI3")],
            "counts 1 simulated card",
        ),
        ({"is_loaded": lambda: False}, [], "not loaded in this process"),
        ({"device_count": lambda: 0}, [], "loaded, but reports no card"),
        ({"generation": lambda: "GAUDI4"}, [(False, None, None)] * 2, "counts 2 cards"),
        # It comes from a private function of the bridge.
        ({"generation": _fail}, [(False, None, None)] * 2, "counts 2 cards"),
    ],
    ids=["loaded", "simulated", "not loaded", "no card", "unknown generation", "no generation"],
)
def test_devices_of_a_bridge(
    different: dict[str, Any], devices: list[Any], message: str, find: Callable[..., SourceResult]
) -> None:
    result = find(**different)

    assert [(device.simulated, device.module_id, device.generation) for device in result.devices] == devices
    assert all(device.is_operational for device in result.devices)
    assert result.message == message


@pytest.mark.usefixtures("fake_bridge")
def test_functions_agree_and_open_no_device() -> None:
    bridge.load()
    info = collect()

    assert (discovery.device_count(), discovery.auto_device_count(), discovery.parse_devices("auto")) == (8, 8, 8)
    assert (len(discovery.devices()), len(info.devices), info.usable) == (8, 8, 8)
    assert (discovery.is_available(), discovery.device_name()) == (True, "GAUDI2")
    assert str(discovery.synapse_version()) == str(info.synapse and info.synapse.version)
    assert not bridge.is_open()


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
