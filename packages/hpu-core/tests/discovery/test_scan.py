"""Tests of querying and merging the sources."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hpu_core import discovery
from hpu_core.discovery import Generation, HPUDevice, SourceResult
from hpu_core.discovery._device import Source
from hpu_core.discovery._scan import ScanResult, scan

_GIB = 1024**3


def _device(source: Source, index: int = 0, **fields: Any) -> HPUDevice:
    """Return an operational device whose address follows from its index."""
    known = {"pci_address": f"0000:{index:02}:00.0", "status": "Operational"}
    return HPUDevice(index=index, source=source, **{**known, **fields})


def _source(name: Source, *devices: HPUDevice) -> Callable[[], SourceResult]:
    return lambda: SourceResult(source=name, location=name, message="", devices=devices)


def _unexpected() -> SourceResult:
    pytest.fail("queried a source that is not needed")


def _run(
    bridge: Callable[[], SourceResult] | None = None, sysfs: Callable[[], SourceResult] | None = None
) -> ScanResult:
    """Scan with these sources; by default they list nothing."""
    return scan(bridge or _source("bridge"), sysfs or _source("sysfs"))


def test_no_device() -> None:
    """Without a device both sources are queried, in order."""
    result = _run()

    assert result.devices == ()
    assert [source.source for source in result.sources] == ["bridge", "sysfs"]


def test_simulated_devices_are_not_merged() -> None:
    """No other source is queried, because details of real devices do not apply."""
    device = _device("bridge", simulated=True)
    result = _run(_source("bridge", device), _unexpected)

    assert result.devices == (device,)


def test_bridge_decides_the_number() -> None:
    """If sysfs lists another number of devices, its details are not used."""
    counted = _device("bridge", pci_address=None, generation="GAUDI2")
    result = _run(bridge=_source("bridge", counted), sysfs=_source("sysfs", _device("sysfs", 0), _device("sysfs", 1)))

    assert result.devices == (dataclasses.replace(counted, memory_bytes=96 * _GIB),)


def test_bridge_devices_get_details_from_sysfs() -> None:
    """The details are used if both list the same number of devices."""
    detailed = _device("sysfs", 0, module_id=3, generation="GAUDI2")
    result = _run(
        bridge=_source("bridge", _device("bridge", pci_address=None, generation="GAUDI2")),
        sysfs=_source("sysfs", detailed),
    )

    assert result.devices == (dataclasses.replace(detailed, source="bridge", memory_bytes=96 * _GIB),)


def test_bridge_counts_only_operational_devices() -> None:
    """A device in reset is listed from sysfs although the bridge does not count it."""
    result = _run(
        bridge=_source("bridge", _device("bridge", pci_address=None)),
        sysfs=_source("sysfs", _device("sysfs", 0), _device("sysfs", 1, status="In reset")),
    )

    assert [device.status for device in result.devices] == ["Operational", "In reset"]


def test_details_of_another_generation_are_not_used() -> None:
    counted = _device("bridge", pci_address=None, generation="GAUDI2")
    result = _run(bridge=_source("bridge", counted), sysfs=_source("sysfs", _device("sysfs", generation="GAUDI3")))

    assert result.devices == (dataclasses.replace(counted, memory_bytes=96 * _GIB),)


@pytest.mark.parametrize(("generation", "gib"), [("GAUDI", 32), ("GAUDI2", 96), ("GAUDI3", 128)])
def test_memory_of_a_generation(generation: Generation, gib: int) -> None:
    assert _run(sysfs=_source("sysfs", _device("sysfs", generation=generation))).devices[0].memory_bytes == gib * _GIB


def _fail() -> SourceResult:
    raise OSError("gone")


def test_failing_source_does_not_stop_the_scan() -> None:
    assert _run(_fail, _source("sysfs", _device("sysfs"))).devices == (_device("sysfs"),)
    assert _run(_source("bridge", _device("bridge")), _fail).devices == (_device("bridge"),)


def test_failure_is_in_the_message() -> None:
    assert [source.message for source in _run(sysfs=_fail).sources] == ["", "failed: OSError: gone"]


# `hl-smi -Q index,module_id` of a Gaudi 3 server with driver 1.24.1, published in a device plugin's test.
_GAUDI3_MODULES = (1, 3, 2, 6, 0, 7, 5, 4)


def _gaudi3_server(**faults: str) -> tuple[HPUDevice, ...]:
    return tuple(
        _device("sysfs", index, module_id=module, generation="GAUDI3", status=faults.get(f"m{module}", "Operational"))
        for index, module in enumerate(_GAUDI3_MODULES)
    )


@pytest.mark.parametrize(
    ("visible", "faults", "numbered"),
    [
        (None, {}, (0, 1, 2, 3, 4, 5, 6, 7)),
        (None, {"m2": "In reset"}, (0, 1, 3, 4, 5, 6, 7)),
        ("6,1,4", {}, (6, 1, 4)),
        ("6,1,4", {"m1": "Malfunction"}, (6, 4)),
    ],
    ids=["all", "a card in reset", "visible modules", "a faulty visible module"],
)
def test_listing_has_the_numbers_that_devices_takes(
    visible: str | None,
    faults: dict[str, str],
    numbered: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They do not depend on the order of the source: hl-smi's 1 is module 3 here."""
    if visible is not None:
        monkeypatch.setenv("HABANA_VISIBLE_MODULES", visible)
    result = _run(sysfs=_source("sysfs", *_gaudi3_server(**faults)))
    monkeypatch.setattr(discovery, "scan", lambda: result)

    assert {device.module_id for device in result.devices} == set(_GAUDI3_MODULES)
    assert [device.index for device in result.devices] == [*range(len(numbered)), *[None] * (8 - len(numbered))]
    assert tuple(device.module_id for device in discovery.devices()[: len(numbered)]) == numbered
    for index, module in enumerate(numbered):
        assert discovery.select_modules([index]) == (module,)


@pytest.mark.parametrize(
    ("visible", "faults", "expected"),
    [(None, {}, None), (None, {"m1": "In reset"}, (0, 2, 3)), ("1,0,5", {"m7": "In reset"}, None)],
    ids=["the bridge's own order", "a card in reset", "the user's order"],
)
def test_number_of_devices_means_the_first_ones_of_the_listing(
    visible: str | None, faults: dict[str, str], expected: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, the bridge gives local rank 1 module 1, also while it is in reset."""
    if visible is not None:
        monkeypatch.setenv("HABANA_VISIBLE_MODULES", visible)
    result = _run(sysfs=_source("sysfs", *_gaudi3_server(**faults)))
    monkeypatch.setattr(discovery, "scan", lambda: result)

    assert discovery.select_modules(3) == expected
    assert discovery.select_modules(1) is None


def test_invalid_visible_modules_number_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "9")

    assert [device.index for device in _run(sysfs=_source("sysfs", *_gaudi3_server())).devices] == list(range(8))
