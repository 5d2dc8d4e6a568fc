"""Collectives and copies of a trace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from hpu_profiler.trace.intervals import length, union

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.model import DeviceEvent

_KeyT = TypeVar("_KeyT")

UNKNOWN_DIRECTION: Final = "unknown direction"

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
    """

    name: str
    calls: int
    time: float
    bytes: int


def collective_stats(events: Iterable[DeviceEvent]) -> tuple[DeviceEventStats, ...]:
    """Return the totals of each collective, longest total time first."""
    return _stats((event.name, event) for event in events if event.kind == "collective")


def memcpy_stats(events: Iterable[DeviceEvent]) -> tuple[DeviceEventStats, ...]:
    """Return the totals of copies in each direction, longest total time first."""
    return _stats((copy_direction(event.name), event) for event in events if event.kind == "memcpy")


def copy_direction(name: str) -> str:
    """Return the direction of a copy from its name; SynapseAI's names need not tell it."""
    return next((direction for pattern, direction in _DIRECTIONS if pattern.search(name)), UNKNOWN_DIRECTION)


def grouped(events: Iterable[tuple[_KeyT, DeviceEvent]]) -> dict[_KeyT, list[DeviceEvent]]:
    """Return the events of each key."""
    groups: dict[_KeyT, list[DeviceEvent]] = {}
    for key, event in events:
        groups.setdefault(key, []).append(event)
    return groups


def busy_time(events: Iterable[DeviceEvent]) -> float:
    """Return the time in which any of the events ran, in microseconds."""
    return length(union(event.interval for event in events))


def _stats(events: Iterable[tuple[str, DeviceEvent]]) -> tuple[DeviceEventStats, ...]:
    stats = [
        DeviceEventStats(
            name,
            len(group),
            sum(event.duration for event in group),
            sum(event.bytes for event in group),
        )
        for name, group in grouped(events).items()
    ]
    return tuple(sorted(stats, key=lambda each: -each.time))
