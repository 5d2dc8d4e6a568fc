"""Steps of a trace one by one, and the critical path of a job through host, card and network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.trace.intervals import clipped, intersection, length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        collectives_end: End of its last collective on the trace's clock; None without one.
    """

    name: str
    duration: float
    card: float
    network: float
    host: float
    collectives_end: float | None


@dataclass(frozen=True, slots=True)
class PathStep:
    """Critical path of one step.

    Attributes:
        name: Name of the step.
        rank: Name of the rank that the others wait for.
        host: Time in which its card waited for its host, in microseconds.
        card: Time in which its card worked.
        network: Time of the exposed collectives without waiting: that of the rank that waits least.
    """

    name: str
    rank: str
    host: float
    card: float
    network: float

    @property
    def duration(self) -> float:
        """Length of the path."""
        return self.host + self.card + self.network


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
        end = communication[-1][1] if communication else None
        duration = length(clipped(windows, step.interval))
        found.append(StepStats(step.name, duration, card, network, duration - card - network, end))
    return tuple(found)


def critical_path(ranks: Mapping[str, Sequence[StepStats]]) -> tuple[PathStep, ...]:
    """Return the critical path of each step that all ranks recorded.

    A step ends when the last rank has done its own work and the collectives have moved their data. The other ranks
    spend the difference waiting in collectives.
    """
    by_rank = {rank: {step.name: step for step in steps} for rank, steps in ranks.items()}
    if not by_rank:
        return ()
    common = [name for name in next(iter(by_rank.values())) if all(name in steps for steps in by_rank.values())]
    path = []
    for name in common:
        steps = {rank: each[name] for rank, each in by_rank.items()}
        last = max(steps, key=lambda rank: steps[rank].host + steps[rank].card)
        network = min(step.network for step in steps.values())
        path.append(PathStep(name, last, steps[last].host, steps[last].card, network))
    return tuple(path)
