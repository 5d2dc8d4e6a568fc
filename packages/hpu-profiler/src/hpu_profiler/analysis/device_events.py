"""Collectives and copies of a trace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_profiler.analysis.counters import bandwidth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.analysis.counters import Bandwidth
    from hpu_profiler.trace.model import DeviceEvent

__all__ = ["DeviceEventStats", "collective_stats", "memcpy_stats"]

_DIRECTIONS: Final = (
    (re.compile(r"h(ost)?_?(to|2)_?d", re.IGNORECASE), "host to device"),
    (re.compile(r"d(evice)?_?(to|2)_?h", re.IGNORECASE), "device to host"),
    (re.compile(r"d(evice)?_?(to|2)_?d", re.IGNORECASE), "device to device"),
)


@dataclass(frozen=True, slots=True)
class DeviceEventStats:
    """Totals of a group of device events.

    Attributes:
        name: Name of a collective, or direction of copies.
        calls: Number of events.
        time: Total duration in microseconds.
        bytes: Bytes sent by this rank or copied; 0 if the trace has no number.
        bandwidth: Rate of the bytes; None if the trace has no number.
    """

    name: str
    calls: int
    time: float
    bytes: int
    bandwidth: Bandwidth | None = None


def collective_stats(events: Iterable[DeviceEvent]) -> tuple[DeviceEventStats, ...]:
    """Return the totals of each collective, longest total time first."""
    return _stats((event.name, event) for event in events if event.kind == "collective")


def memcpy_stats(events: Iterable[DeviceEvent]) -> tuple[DeviceEventStats, ...]:
    """Return the totals of copies in each direction, longest total time first."""
    return _stats((_direction(event.name), event) for event in events if event.kind == "memcpy")


def _direction(name: str) -> str:
    return next((direction for pattern, direction in _DIRECTIONS if pattern.search(name)), "unknown direction")


def _stats(events: Iterable[tuple[str, DeviceEvent]]) -> tuple[DeviceEventStats, ...]:
    groups: dict[str, list[DeviceEvent]] = {}
    for name, event in events:
        groups.setdefault(name, []).append(event)
    stats = [
        DeviceEventStats(
            name,
            len(group),
            sum(event.duration for event in group),
            sum(event.bytes for event in group),
            bandwidth(group),
        )
        for name, group in groups.items()
    ]
    return tuple(sorted(stats, key=lambda each: -each.time))
