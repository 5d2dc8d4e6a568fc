"""Time and memory by operator: what the summary and the report show of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_profiler.trace.model import Trace


@dataclass(slots=True)
class OperatorTotal:
    """All calls of an operator, or of a kernel of the card that no operator of the host is known to have launched.

    Attributes:
        name: The operator.
        shapes: Shapes of its inputs, where calls are told apart by them.
        calls: How many.
        cpu: Time on the host with everything it called, in microseconds.
        own_cpu: Time on the host without what it called.
        hpu: Time of the card's work that it launched itself.
        works: Pieces of that work.
        memory: Bytes that it took less what it gave back, without what it called.
    """

    name: str
    shapes: str = ""
    calls: int = 0
    cpu: float = 0.0
    own_cpu: float = 0.0
    hpu: float = 0.0
    works: int = 0
    memory: int = 0


def totals(traces: Iterable[Trace], *, by_shapes: bool = False) -> list[OperatorTotal]:
    """Add up operators and the card's work.

    Each piece of work counts once, for the operator that launched it: the card's time of all rows together is that of
    all intervals in the traces.

    Args:
        traces: Of one or more processes.
        by_shapes: Whether calls with other shapes are other rows.

    Returns:
        The rows, the one with most time on the card first.
    """
    rows: dict[tuple[str, str], OperatorTotal] = {}

    def row(name: str, shapes: str) -> OperatorTotal:
        key = (name, shapes if by_shapes else "")
        return rows.setdefault(key, OperatorTotal(*key))

    for trace in traces:
        for operator in trace.operators:
            total = row(operator.name, operator.shapes)
            total.calls += 1
            total.cpu += operator.duration
            total.own_cpu += operator.own
            total.memory += operator.memory
        for work in trace.work:
            launcher = work.operator
            total = row(launcher.name, launcher.shapes) if launcher else row(work.name, "")
            total.hpu += work.duration
            total.works += 1
            # Nobody called a kernel that has no operator; how often it ran is what is known.
            total.calls += launcher is None
    return sorted(rows.values(), key=lambda each: (-each.hpu, -each.own_cpu, each.name))
