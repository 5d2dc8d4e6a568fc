"""What a card reports while it works: memory from the bridge; power, temperature and utilisation from pyhlml.

Monitoring must never stop a training: what cannot be read is left out.
"""

import contextlib
import functools
import importlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hpu_core import bridge

_log = logging.getLogger(__name__)

_DEVICE_NODE = re.compile(r"/dev/accel/accel(\d+)")

# Names with the unit, in characters that every experiment logger accepts. Units as pyhlml 1.24 documents them:
# milliwatts, degrees Celsius, percent of the last second. Sensor 0 is HLML_TEMPERATURE_ON_AIP, the processor itself.
_FIGURES: Mapping[str, Callable[[Any, Any], float]] = {
    "power_watts": lambda hlml, card: hlml.hlmlDeviceGetPowerUsage(card) / 1000,
    "temperature_celsius": lambda hlml, card: hlml.hlmlDeviceGetTemperature(card, 0),
    "utilization_percent": lambda hlml, card: hlml.hlmlDeviceGetUtilizationRates(card).aip,
}


def device_stats() -> dict[str, float]:
    """Return the figures of the card that this process has open; nothing while it has none. Opens no card.

    Returns:
        The bridge's memory figures under its own names, of which Limit, InUse, MaxInUse and MaxAllocSize are in bytes
        and NumAllocs, NumFrees, ActiveAllocs, TotalSystemAllocs, TotalSystemFrees and TotalActiveAllocs are counts.
        With pyhlml (the extra `hpu-core[telemetry]`) also power_watts, temperature_celsius and utilization_percent,
        of which the simulator has none.
    """
    if not bridge.is_open():
        return {}
    stats: dict[str, float] = {**bridge.memory_stats()}
    if not bridge.is_simulated():
        stats.update(_card_figures())
    return stats


def _card_figures() -> dict[str, float]:
    library = _library()
    if library is None:
        return {}
    figures = {}
    # The library writes to stdout in some failures; a progress bar lives there.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        card = _own_card(library)
        for name, read in _FIGURES.items() if card is not None else ():
            with contextlib.suppress(Exception):
                figures[name] = float(read(library, card))
    return figures


@functools.cache
def _library() -> ModuleType | None:
    """Import and start pyhlml, once per process; None where that is not possible."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            library = importlib.import_module("pyhlml")
        except ImportError:
            return None
        try:
            library.hlmlInit()
        except Exception as error:  # noqa: BLE001 - pyhlml makes its error classes at run time.
            _log.warning("pyhlml cannot be used, so power, temperature and utilisation are not logged: %s", error)
            return None
    return library


def _own_card(library: Any) -> object | None:
    """Return pyhlml's handle of the card that this process has open, or None if that cannot be told.

    The open device node says it for certain. Without one (older drivers name it differently) the module that the
    bridge was told to take does, and so does a machine with a single card.
    """
    cards = [library.hlmlDeviceGetHandleByIndex(index) for index in range(library.hlmlDeviceGetCount())]
    minors = set(_open_device_nodes())
    if minors:
        return next((card for card in cards if library.hlmlDeviceGetMinorNumber(card) in minors), None)
    module = os.environ.get("HLS_MODULE_ID", "")
    if module:
        return next((card for card in cards if str(library.hlmlDeviceGetModuleID(card)) == module), None)
    return cards[0] if len(cards) == 1 else None


def _open_device_nodes(folder: Path = Path("/proc/self/fd")) -> Iterator[int]:
    """Yield the numbers N of the nodes /dev/accel/accelN that this process has open.

    Args:
        folder: The symlinks of a process's open files.
    """
    with contextlib.suppress(OSError):
        for descriptor in list(folder.iterdir()):
            # A file may be closed by another thread while this looks.
            with contextlib.suppress(OSError):
                if node := _DEVICE_NODE.fullmatch(str(descriptor.readlink())):
                    yield int(node[1])
