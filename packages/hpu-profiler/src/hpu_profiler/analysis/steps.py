"""Steps of a trace one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.trace.intervals import clipped, intersection, length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import HostSpan


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step of one rank; times are microseconds.

    Attributes:
        name: Name in the trace.
        duration: Time of the step.
        card: Time in which the card computed or copied.
        network: Exposed communication.
        host: Time in which the card was idle.
    """

    name: str
    duration: float
    card: float
    network: float
    host: float


def step_stats(
    steps: Sequence[HostSpan], windows: list[Interval], working: list[Interval], collectives: list[Interval]
) -> tuple[StepStats, ...]:
    """Return the parts of each step.

    Args:
        steps: Steps, ordered by start.
        windows: Time ranges of the stage, as disjoint intervals; validation may run within a training step.
        working: Time in which the card computed or copied, as disjoint intervals.
        collectives: Time in collectives, as disjoint intervals.
    """
    found = []
    for step in steps:
        work, communication = clipped(working, step.interval), clipped(collectives, step.interval)
        card = length(work)
        network = length(communication) - length(intersection(communication, work))
        duration = length(clipped(windows, step.interval))
        found.append(StepStats(step.name, duration, card, network, duration - card - network))
    return tuple(found)
