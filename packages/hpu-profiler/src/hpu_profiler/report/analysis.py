"""A trace becomes what a report says of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hpu_profiler.report.findings import find
from hpu_profiler.report.model import CAUSES, Analysis, Collective, Compilations, Copies, Report
from hpu_profiler.trace.nesting import own_times
from hpu_profiler.trace.operators import totals
from hpu_profiler.trace.spans import difference, intersection, length, union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpu_profiler.report.model import Cause
    from hpu_profiler.trace.model import Operator, Span, Trace, Work
    from hpu_profiler.trace.spans import Interval

# Lightning's actions and torch's own mark.
_LOADING: Final = re.compile(r"dataloader_next$|\.(val|test|predict|sanity_check)_next$|^enumerate\(DataLoader\)")
# What makes the host wait for a value: torch's operators, and calls of the bridge where they are logged.
_WAITING_OPERATORS: Final = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero"})
_WAITING: Final = re.compile(r"synchroni[sz]e|(^|_)wait", re.IGNORECASE)
_MARK: Final = "[pl][profile]"
_AGAIN: Final = re.compile(r"recompil", re.IGNORECASE)
_DIRECTIONS: Final = (
    (re.compile(r"h(ost)?_?(to|2)_?d", re.IGNORECASE), "to the card"),
    (re.compile(r"d(evice)?_?(to|2)_?h", re.IGNORECASE), "to the host"),
    (re.compile(r"d(evice)?_?(to|2)_?d", re.IGNORECASE), "on the card"),
)
#: Ranks are called alike when the slowest takes at most so much more than the median of all.
_ALIKE: Final = 0.05


def report(traces: Iterable[Trace]) -> Report:
    """Return what traces say, one by one and together."""
    traces = sorted(traces, key=lambda each: (each.rank is None, each.rank or 0, each.stage, each.path.name))
    analyses = tuple(analyse(trace, name) for trace, name in zip(traces, _names(traces), strict=True))
    slowest = _slowest(analyses)
    return Report(analyses, tuple(totals(traces)), slowest, find(analyses, slowest))


def analyse(trace: Trace, name: str) -> Analysis:
    """Return what one trace says.

    Args:
        trace: The trace.
        name: What it is called in the report.
    """
    whole = [trace.window]

    def inside(events: Iterable[Span | Operator | Work]) -> list[Interval]:
        return intersection(union((each.begin, each.end) for each in events), whole)

    busy = inside(trace.work)
    kernels = inside(each for each in trace.work if each.kind == "kernel")
    collective = inside(each for each in trace.work if each.kind == "collective")
    idle, gaps = _causes(trace, difference(whole, busy), inside) if trace.work else ({}, [])
    return Analysis(
        name=name,
        trace=trace,
        window=length(whole),
        busy=length(busy),
        idle=idle,
        marks=_marks(trace, gaps),
        collective=length(collective),
        overlapped=length(intersection(collective, kernels)),
        collectives=_collectives(trace.work),
        copies=_copies(trace.work),
        compilations=_compilations(trace),
    )


def _causes(
    trace: Trace, gaps: list[Interval], inside: Callable[[Iterable[Span | Operator | Work]], list[Interval]]
) -> tuple[dict[Cause, float], list[Interval]]:
    """Return how long the card was idle, by what the host did meanwhile, and the gaps for which none is known."""
    found: dict[Cause, float] = {}
    for cause, spans in host_activity(trace).items():
        doing = inside(spans)
        found[cause] = length(intersection(gaps, doing))
        gaps = difference(gaps, doing)
    found[CAUSES[-1]] = length(gaps)
    return found, gaps


def _marks(trace: Trace, gaps: list[Interval]) -> tuple[tuple[str, float], ...]:
    """Return how much of gaps the program spent in what, in the thread that runs its steps."""
    if not gaps or not trace.steps:
        return ()
    thread = trace.steps[0].thread
    marked = [span for span in trace.spans if span.thread == thread and span.name.startswith(_MARK)]
    times = {
        name.removeprefix(_MARK): length(intersection(union(intervals), gaps))
        for name, intervals in own_times(marked).items()
    }
    return tuple(sorted(((name, time) for name, time in times.items() if time), key=lambda pair: -pair[1]))


def host_activity(trace: Trace) -> dict[Cause, list[Span | Operator]]:
    """Return what the host did that leaves a card without work, by cause, in the order in which causes count."""
    waits: list[Span | Operator] = [each for each in trace.operators if each.name in _WAITING_OPERATORS]
    waits += [each for each in trace.spans if _WAITING.search(each.name)]
    return {
        "compilation": [*trace.compilations],
        "data loading": [each for each in trace.spans if _LOADING.search(each.name)],
        "host sync": waits,
    }


def _collectives(work: Sequence[Work]) -> tuple[Collective, ...]:
    by_name: dict[str, list[Work]] = {}
    for each in work:
        if each.kind == "collective":
            by_name.setdefault(each.name, []).append(each)
    rows = [
        Collective(name, len(calls), sum(call.duration for call in calls), sum(call.bytes for call in calls))
        for name, calls in by_name.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.time))


def _copies(work: Sequence[Work]) -> tuple[Copies, ...]:
    by_direction: dict[str, list[Work]] = {}
    for each in work:
        if each.kind == "copy":
            by_direction.setdefault(_direction(each.name), []).append(each)
    rows = [
        Copies(direction, len(calls), sum(call.duration for call in calls), sum(call.bytes for call in calls))
        for direction, calls in by_direction.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.time))


def _direction(name: str) -> str:
    return next((direction for pattern, direction in _DIRECTIONS if pattern.search(name)), "unknown")


def _compilations(trace: Trace) -> Compilations:
    counted = trace.counted.get("graph_compilation", {})
    shown = len(trace.compilations)
    again = sum(bool(_AGAIN.search(each.name)) for each in trace.compilations)
    time = length(union((each.begin, each.end) for each in trace.compilations))
    # The unit of the bridge's TotalTime is not known, so time is what the trace shows.
    return Compilations(max(int(counted.get("TotalNumber", 0)), shown), again, time)


def _names(traces: Sequence[Trace]) -> list[str]:
    """Return a name for each trace: its rank, and as much more as it takes to tell it from the others."""
    ranks = [f"rank {trace.rank}" if trace.rank is not None else trace.path.name.split(".")[0] for trace in traces]
    staged = [
        f"{rank}, {trace.stage}" if trace.stage and ranks.count(rank) > 1 else rank
        for rank, trace in zip(ranks, traces, strict=True)
    ]
    return [
        f"{name}, trace {staged[: index + 1].count(name)}" if staged.count(name) > 1 else name
        for index, name in enumerate(staged)
    ]


def _slowest(analyses: Sequence[Analysis]) -> Analysis | None:
    """Return the rank whose own time is longest, where it is longer than usual.

    All ranks take the same time for a step, since they meet in its collectives: those that were quick wait there. So
    what tells them apart is the time without that waiting.
    """
    compared = [each for each in analyses if each.steps and each.trace.stage in {"", "training"}]
    if len({each.trace.rank for each in compared}) <= 1:
        return None
    by_time = sorted(compared, key=lambda each: each.own_time)
    # The lower median, so that one of two is compared with the other.
    usual = by_time[(len(by_time) - 1) // 2].own_time
    slowest = by_time[-1]
    return slowest if slowest.own_time > usual * (1 + _ALIKE) else None
