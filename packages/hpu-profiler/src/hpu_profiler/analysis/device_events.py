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
class CollectiveStats:
    """Totals of a collective.

    Attributes:
        name: Its name.
        calls: Number of events.
        time: Total duration in microseconds.
    """

    name: str
    calls: int
    time: float


def collective_stats(events: Iterable[DeviceEvent]) -> tuple[CollectiveStats, ...]:
    """Return the totals of each collective, longest total time first."""
    groups = grouped((event.name, event) for event in events if event.kind == "collective")
    stats = [CollectiveStats(name, len(each), sum(event.duration for event in each)) for name, each in groups.items()]
    return tuple(sorted(stats, key=lambda each: -each.time))


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
