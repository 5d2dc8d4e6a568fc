"""Graph compilations, and steps whose operators have shapes that no earlier step had."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_profiler.trace.intervals import length, union

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.model import Operator, Trace


@dataclass(frozen=True, slots=True)
class CompilationStats:
    """Graph compilations in a trace.

    Attributes:
        counted: Number of compiled graphs by the bridge's metric; 0 if the trace does not have it.
        recorded: Number of compilations in the trace.
        time: Time in compilations, as far as the trace shows them, in microseconds.
    """

    counted: int
    recorded: int
    time: float

    @property
    def count(self) -> int:
        """Number of compiled graphs, from the bridge's metric or from the trace, whichever has more."""
        return max(self.counted, self.recorded)


@dataclass(frozen=True, slots=True)
class NewShapes:
    """Steps with shapes that no earlier step had.

    Attributes:
        steps: Number of such steps after the first one.
        operators: Operators with new shapes in the first of them; empty if shapes were not recorded or do not change.
    """

    steps: int = 0
    operators: tuple[Operator, ...] = ()


def compilation_stats(trace: Trace) -> CompilationStats:
    """Return the graph compilations of a trace."""
    metric = trace.bridge_metrics.get("graph_compilation", {})
    # The unit of the metric's TotalTime is unknown, so the time is that of the trace.
    return CompilationStats(
        counted=int(metric.get("TotalNumber", 0)),
        recorded=len(trace.compilations),
        time=length(union(span.interval for span in trace.compilations)),
    )


def new_shapes(trace: Trace) -> NewShapes:
    """Return the steps whose operators have new input shapes; needs `record_shapes=True`."""
    seen: set[tuple[str, str]] = set()
    steps = 0
    first: list[Operator] = []
    for index, operators in enumerate(_by_step(trace)):
        new = [operator for operator in operators if operator.shapes and (operator.name, operator.shapes) not in seen]
        if new and index:
            steps += 1
            first = first or new
        seen.update((operator.name, operator.shapes) for operator in new)
    return NewShapes(steps, tuple(first))


def _by_step(trace: Trace) -> Iterable[list[Operator]]:
    """Yield the operators of each step on the thread that runs the steps."""
    operators = [operator for operator in trace.operators if operator.thread == trace.step_thread]
    starts = [operator.start for operator in operators]
    for step in trace.steps:
        yield operators[bisect_left(starts, step.start) : bisect_left(starts, step.end)]
