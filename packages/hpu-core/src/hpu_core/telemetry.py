"""Telemetry of the open device: memory from the bridge; power, temperature and utilization from pyhlml.

A value that cannot be read is left out, because monitoring must not stop training.
"""

import contextlib
import functools
import importlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hpu_core import bridge
from hpu_core.discovery import _holders

_log = logging.getLogger(__name__)

# Units as in pyhlml 1.24: milliwatts, degrees Celsius, percent of the last second. Sensor 0 is HLML_TEMPERATURE_ON_AIP,
# the processor itself. Every experiment logger accepts the characters of these names.
_METRICS: Mapping[str, Callable[[Any, Any], float]] = {
    "power_watts": lambda hlml, handle: hlml.hlmlDeviceGetPowerUsage(handle) / 1000,
    "temperature_celsius": lambda hlml, handle: hlml.hlmlDeviceGetTemperature(handle, 0),
    "utilization_percent": lambda hlml, handle: hlml.hlmlDeviceGetUtilizationRates(handle).aip,
}


def device_stats() -> dict[str, float]:
    """Return the statistics of the device that this process has open, empty if it has none. Opens no device.

    Returns:
        Memory statistics as the bridge names them. Limit, InUse, MaxInUse and MaxAllocSize in bytes; NumAllocs,
        NumFrees, ActiveAllocs, TotalSystemAllocs, TotalSystemFrees and TotalActiveAllocs as counts. With pyhlml (the
        extra `hpu-core[telemetry]`) also power_watts, temperature_celsius and utilization_percent, except on the
        simulator.
    """
    # hpu-doctor verify: memory-stats-keys
    if not bridge.is_open():
        return {}
    stats: dict[str, float] = {**bridge.memory_stats()}
    if not bridge.is_simulated():
        stats.update(_hlml_stats())
    return stats


def _hlml_stats() -> dict[str, float]:
    hlml = _load_hlml()
    if hlml is None:
        return {}
    stats = {}
    # pyhlml creates its exception classes at run time.
    with contextlib.suppress(Exception):
        handle = _own_handle(hlml)
        for name, read in _METRICS.items() if handle is not None else ():
            with contextlib.suppress(Exception):
                stats[name] = float(read(hlml, handle))
    return stats


@functools.cache
def _load_hlml() -> ModuleType | None:
    """Import pyhlml and initialize its library, once per process; return None if that fails."""
    try:
        hlml = importlib.import_module("pyhlml")
    except ImportError:
        return None
    try:
        # It prints a message if the library is missing.
        with contextlib.redirect_stdout(io.StringIO()):
            hlml.hlmlInit()
    except Exception as error:  # noqa: BLE001 - see `_hlml_stats`.
        _log.warning("pyhlml failed, so power, temperature and utilization are not logged: %s", error)
        return None
    return hlml


def _own_handle(hlml: Any) -> object | None:
    """Return pyhlml's handle of the device that this process has open, None if it is ambiguous.

    The open device node identifies it. Older drivers have other nodes; then HLS_MODULE_ID does, which selected the
    device, or the fact that the machine has only one.
    """
    handles = [hlml.hlmlDeviceGetHandleByIndex(index) for index in range(hlml.hlmlDeviceGetCount())]
    minors = set(_open_device_nodes())
    if minors:
        return next((handle for handle in handles if hlml.hlmlDeviceGetMinorNumber(handle) in minors), None)
    module = os.environ.get("HLS_MODULE_ID", "")
    if module:
        return next((handle for handle in handles if str(hlml.hlmlDeviceGetModuleID(handle)) == module), None)
    return handles[0] if len(handles) == 1 else None


def _open_device_nodes(folder: Path = Path("/proc/self/fd")) -> Iterator[int]:
    """Yield N for each node /dev/accel/accelN that this process has open."""
    with contextlib.suppress(OSError):
        for node in _holders.open_nodes(folder):
            number = node.removeprefix("/dev/accel/accel")
            if number.isdecimal():
                yield int(number)
