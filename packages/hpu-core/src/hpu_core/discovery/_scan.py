"""Scan of both sources of discovery, merged into one list of devices."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hpu_core.discovery import _bridge, _sysfs, _visible_modules
from hpu_core.discovery._device import HPUDevice, Source, SourceResult, printable
from hpu_core.discovery._generation import MEMORY_BYTES

# Lists the devices of one source.
Find: TypeAlias = Callable[[], SourceResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """Merged result of a scan.

    Attributes:
        devices: Every device; those that can be used first, in the order of their indices.
        sources: Result of each source that was queried, in order.
    """

    devices: tuple[HPUDevice, ...]
    sources: tuple[SourceResult, ...] = ()


def scan(find_counted: Find = _bridge.find, find_listed: Find = _sysfs.find) -> ScanResult:
    """Query the bridge and sysfs, and merge their devices. Never raises: a source that fails lists no device.

    If the bridge counts devices, they are the ones of this machine, and sysfs adds details.
    """
    counted = _query("bridge", find_counted)
    if any(device.simulated for device in counted.devices):
        # Details of real devices of this machine must not mix with simulated ones.
        devices, sources = counted.devices, [counted]
    else:
        details = _query("sysfs", find_listed)
        sources = [counted, details]
        devices = _match(counted.devices, details.devices) or counted.devices or details.devices
    try:
        devices = _visible_modules.number(devices, _visible_modules.from_environment())
    except _visible_modules.VisibleModulesError:
        devices = _visible_modules.number(devices, None)
    return ScanResult(devices=devices, sources=tuple(sources))


def _query(name: Source, find: Find) -> SourceResult:
    try:
        result = find()
    except Exception as error:  # noqa: BLE001 - discovery must work on broken machines.
        return SourceResult(source=name, location=name, message=printable(f"failed: {type(error).__name__}: {error}"))
    return dataclasses.replace(result, devices=tuple(map(_with_memory, result.devices)))


def _with_memory(device: HPUDevice) -> HPUDevice:
    return (
        device
        if device.generation is None
        else dataclasses.replace(device, memory_bytes=MEMORY_BYTES[device.generation])
    )


def _match(counted: Sequence[HPUDevice], detailed: Sequence[HPUDevice]) -> tuple[HPUDevice, ...]:
    """Return `detailed` as the bridge's devices if both are the same devices, else an empty tuple.

    They are the same if the bridge counts all of them or all operational ones, and reports the same generation.
    """
    operational = sum(device.is_operational for device in detailed)
    generations = {device.generation for device in (*counted, *detailed)} - {None}
    if not counted or len(counted) not in {len(detailed), operational} or len(generations) > 1:
        return ()
    return tuple(dataclasses.replace(device, source="bridge") for device in detailed)
