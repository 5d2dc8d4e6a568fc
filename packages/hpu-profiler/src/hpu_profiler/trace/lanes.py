"""Lanes of a trace: which of them are engines of a card, and what their events are.

Up to SynapseAI 1.19 the bridge numbers the lanes of the process "/device:HPU:0" by engine, in thousands, and names them
as SynapseAI does. Its categories do not tell collectives: events of the network ports are "Runtime", as are copies
whose names do not begin with "memcpy". Later releases are assumed to keep the names of engines. Other processes with
the same categories are logs of the host: the lanes "Synapse/...", and the logs of the bridge, whose events come as
begin and end. The bridge pairs begins and ends of "Synapse/..." first in, first out, so nested calls have each other's
starts. Their ends are right, so pairing each end with the last begin gives the starts back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import DeviceEventKind

DEVICE_PROCESS: Final = "/device:HPU:"
HOST_LANE: Final = "Synapse/"
BRIDGE_LOGS: Final = "Bridge Logs"
MEMORY_LOGS: Final = "Memory Logs"
#: Engines that schedule work and do none.
CONTROL_ENGINES: Final = frozenset({"PSOC", "SM", "PMMU", "ARC_FARM"})

# Number of a lane by a thousand. DMA, MME and TPC come twice: of the first generation, and of later ones.
_ENGINES: Final = {
    0: "DMA",
    1: "MME",
    2: "TPC",
    3: "DMA",
    4: "DMA",
    5: "DMA",
    6: "MME",
    7: "TPC",
    8: "PSOC",
    9: "SM",
    10: "PMMU",
    11: "ROTATOR",
    12: "ARC_FARM",
    13: "VIDEO_DECODER",
    14: "NIC",
    15: "NIC",
    16: "NIC",
    17: "NIC",
}
_ENGINE_RE: Final = re.compile(
    r"\**\s*(?:[PEK]?(?P<copy>DMA)|(?P<other>MME|TPC|NIC|PSOC|SM|PMMU|ROTATOR|ARC_FARM|VIDEO_DECODER))(?![A-Za-z])"
)
_COLLECTIVE_RE: Final = re.compile(r"[hn]ccl", re.IGNORECASE)


def lane_engine(name: str, number: object) -> str:
    """Return the engine of a lane of the device; "compute" if it is unknown.

    Args:
        name: Name of the lane; empty if it has none.
        number: Number of the lane.
    """
    match = _ENGINE_RE.match(name)
    if match is not None:
        return match["copy"] or match["other"]
    if name.startswith("stream ") or not isinstance(number, int):
        return "compute"
    return _ENGINES.get(number // 1000, "compute")


def event_kind(kind: DeviceEventKind, engine: str, name: str) -> DeviceEventKind:
    """Return what an event of the device is: its engine tells more than its category.

    Args:
        kind: Kind by the event's category; "other" for "Runtime".
        engine: Result of `lane_engine`.
        name: Name of the event. It tells a collective only if it begins with the library's name and the engine is
            unknown: the vector engines run nodes with names such as "broadcast", which expand a tensor.
    """
    if engine == "NIC":
        return "collective"
    if engine == "DMA":
        # A kernel of a copy engine is a transposition.
        return "memcpy" if kind == "other" else kind
    if engine == "compute":
        return "collective" if _COLLECTIVE_RE.match(name) else kind
    return "kernel"


def nested_starts(calls: Sequence[Interval]) -> list[float]:
    """Return the start of each call in a lane of the host, so that the calls nest.

    >>> nested_starts([(10, 30), (20, 40)])
    [20, 10]
    """
    starts = [start for start, _ in calls]
    points = []
    for index, (start, end) in enumerate(calls):
        # Times are nanoseconds; a sum of start and duration has a rounding error.
        start, end = round(start, 3), round(end, 3)  # noqa: PLW2901 - the same times
        if start < end:
            # At equal times, calls end before others start, and the inner one ends first.
            points += [(start, 1, start, index), (end, 0, -start, index)]
    running: list[float] = []
    for time, is_start, _, index in sorted(points):
        if is_start:
            running.append(time)
        else:
            starts[index] = running.pop()
    return starts
