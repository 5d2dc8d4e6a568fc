"""Scan of all sources of discovery, merged into one list of devices."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hpu_core.discovery import _bridge, _hl_smi, _pyhlml, _sysfs, _visible_modules
from hpu_core.discovery._device import (
    OPERATIONAL,
    UNKNOWN_STATUS,
    HPUDevice,
    Source,
    SourceResult,
    printable,
    with_memory_source,
)

# Lists the devices of one source.
Find: TypeAlias = Callable[[], SourceResult]

_SOURCES: Final[Mapping[Source, Find]] = {
    "bridge": _bridge.find,
    "pyhlml": _pyhlml.find,
    "sysfs": _sysfs.find,
    "hl-smi": _hl_smi.find,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """Merged result of a scan.

    Attributes:
        devices: Every device; those that can be used first, in the order of their indices.
        sources: Result of each source that was queried, in order.
    """

    devices: tuple[HPUDevice, ...]
    sources: tuple[SourceResult, ...] = ()


def scan(sources: Mapping[Source, Find] = _SOURCES) -> ScanResult:
    """Query the sources and merge their devices. Never raises: a source that fails lists no device.

    The first source that lists a device decides which devices there are; the later ones add details. `hl-smi` starts a
    process, so it runs only if no other source lists a device or none has a device's status.
    """
    result = _scan(sources)
    try:
        devices = _visible_modules.number(result.devices, _visible_modules.from_environment())
    except _visible_modules.VisibleModulesError:
        devices = _visible_modules.number(result.devices, None)
    return dataclasses.replace(result, devices=devices)


def _scan(sources: Mapping[Source, Find]) -> ScanResult:
    bridge = _query(sources, "bridge")
    if any(device.simulated for device in bridge.devices):
        # Details of real devices of this machine must not mix with simulated ones.
        return ScanResult(devices=bridge.devices, sources=(bridge,))
    results = [bridge, _query(sources, "pyhlml"), _query(sources, "sysfs")]
    devices = _combine(results[1:])
    if bridge.devices:
        return ScanResult(devices=_match(bridge.devices, devices) or bridge.devices, sources=tuple(results))
    if not devices or any(device.status == UNKNOWN_STATUS for device in devices):
        results.append(_query(sources, "hl-smi"))
        devices = _combine(results[1:])
    return ScanResult(devices=devices, sources=tuple(results))


def _query(sources: Mapping[Source, Find], name: Source) -> SourceResult:
    try:
        result = sources[name]()
    except Exception as error:  # noqa: BLE001 - discovery must work on broken machines.
        return SourceResult(source=name, location=name, message=printable(f"failed: {type(error).__name__}: {error}"))
    return dataclasses.replace(result, devices=tuple(map(with_memory_source, result.devices)))


def _combine(results: Sequence[SourceResult]) -> tuple[HPUDevice, ...]:
    """Return the devices of the first result that has any, with details that later results add by PCI address."""
    first = next((result for result in results if result.devices), None)
    if first is None:
        return ()
    devices = list(first.devices)
    for result in results[results.index(first) + 1 :]:
        by_address = {device.pci_address: device for device in result.devices}
        devices = [
            _merge(device, by_address.get(device.pci_address)) if device.pci_address else device for device in devices
        ]
    return tuple(devices)


def _merge(device: HPUDevice, other: HPUDevice | None) -> HPUDevice:
    """Fill the unknown fields of `device` from another source's data on the same device, and merge the status."""
    if other is None:
        return device
    memory = other if device.memory_source != "reported" and other.memory_bytes is not None else device
    return dataclasses.replace(
        device,
        module_id=other.module_id if device.module_id is None else device.module_id,
        generation=device.generation or other.generation,
        memory_bytes=memory.memory_bytes,
        memory_source=memory.memory_source,
        status=_merge_status(device.status, other.status),
        driver_version=device.driver_version or other.driver_version,
    )


def _merge_status(first: str, second: str) -> str:
    """Return the more severe status: a fault, then operational, then unknown."""
    faults = [status for status in (first, second) if status not in {OPERATIONAL, UNKNOWN_STATUS}]
    if faults:
        return faults[0]
    return OPERATIONAL if OPERATIONAL in {first, second} else UNKNOWN_STATUS


def _match(counted: Sequence[HPUDevice], detailed: Sequence[HPUDevice]) -> tuple[HPUDevice, ...]:
    """Return `detailed` as the bridge's devices if both are the same devices, else an empty tuple.

    They are the same if the bridge counts all of them or all operational ones, and reports the same generation.
    """
    operational = sum(device.is_operational for device in detailed)
    generations = {device.generation for device in (*counted, *detailed)} - {None}
    if len(counted) not in {len(detailed), operational} or len(generations) > 1:
        return ()
    return tuple(dataclasses.replace(device, source="bridge") for device in detailed)
