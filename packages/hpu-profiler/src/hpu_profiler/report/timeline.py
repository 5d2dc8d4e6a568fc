"""What happened when, as geometry for the page: a lane for the steps, one for the host, one for each engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hpu_profiler.report.analysis import host_activity
from hpu_profiler.trace.spans import intersection, length, union
from hpu_profiler.units import in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.model import Kind, Trace, Work
    from hpu_profiler.trace.spans import Interval

#: Width of a lane; the page stretches it to its own.
WIDTH: Final = 1000
#: Bars of a lane; where there are more, shares of equal pieces of time are drawn.
MOST_BARS: Final = 400

Tone = Literal["step", "compilation", "loading", "sync", "kernel", "copy", "memset", "collective"]
_HOST: Final[dict[str, Tone]] = {"compilation": "compilation", "data loading": "loading", "host sync": "sync"}
_ENGINES: Final = ("MME", "TPC", "DMA", "NIC")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a lane.

    Attributes:
        x: Left edge, of `WIDTH`.
        width: Its width.
        tone: What it stands for.
        label: What the reader is told on pointing at it.
        opacity: How much of its time is filled, as a part of 1.
    """

    x: float
    width: float
    tone: Tone
    label: str
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of bars.

    Attributes:
        name: Of the lane.
        bars: From left to right.
    """

    name: str
    bars: tuple[Bar, ...]


def draw(trace: Trace) -> tuple[Lane, ...]:
    """Return the lanes of a trace that hold anything."""
    window = trace.window
    lanes = [Lane("steps", _steps(trace, window)), Lane("host", _host(trace, window))]
    engines: dict[str, list[Work]] = {}
    for work in trace.work:
        engines.setdefault(work.lane, []).append(work)
    known = [engine for engine in _ENGINES if engine in engines]
    lanes += [Lane(name, _work(engines[name], window)) for name in [*known, *sorted(set(engines) - set(known))]]
    return tuple(lane for lane in lanes if lane.bars)


def _steps(trace: Trace, window: Interval) -> tuple[Bar, ...]:
    return tuple(
        _bar((step.begin, step.end), window, "step", f"{step.name.rpartition('#')[2]}: {in_time(step.duration)}")
        for step in trace.steps
    )


def _host(trace: Trace, window: Interval) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for cause, spans in host_activity(trace).items():
        busy = intersection(union((each.begin, each.end) for each in spans), [window])
        if len(busy) > MOST_BARS:
            bars += _shares(busy, window, _HOST[cause], cause)
        else:
            bars += [_bar(each, window, _HOST[cause], f"{cause}: {in_time(each[1] - each[0])}") for each in busy]
    return tuple(bars)


def _work(work: Sequence[Work], window: Interval) -> tuple[Bar, ...]:
    inside = [each for each in work if each.end > window[0] and each.begin < window[1]]
    if len(inside) <= MOST_BARS:
        return tuple(
            _bar((each.begin, each.end), window, each.kind, f"{each.name}: {in_time(each.duration)}") for each in inside
        )
    bars: list[Bar] = []
    kinds: tuple[Kind, ...] = ("kernel", "copy", "memset", "collective")
    for kind in kinds:
        busy = union((each.begin, each.end) for each in inside if each.kind == kind)
        bars += _shares(intersection(busy, [window]), window, kind, kind)
    return tuple(bars)


def _bar(interval: Interval, window: Interval, tone: Tone, label: str) -> Bar:
    scale = WIDTH / ((window[1] - window[0]) or 1.0)
    begin, end = max(interval[0], window[0]), min(interval[1], window[1])
    # A bar that nobody could see would be a lie of its own.
    return Bar(round((begin - window[0]) * scale, 2), round(max((end - begin) * scale, 0.3), 2), tone, label)


def _shares(busy: list[Interval], window: Interval, tone: Tone, name: str) -> list[Bar]:
    """Return a bar for each piece of time, as dense as the piece is filled."""
    piece = (window[1] - window[0]) / MOST_BARS
    bars = []
    for index in range(MOST_BARS):
        begin = window[0] + index * piece
        share = length(intersection(busy, [(begin, begin + piece)])) / piece
        if share > 0:
            label = f"{name}: {100 * share:.0f} % of {in_time(piece)}"
            x = index * WIDTH / MOST_BARS
            bars.append(Bar(round(x, 2), WIDTH / MOST_BARS, tone, label, round(max(share, 0.08), 2)))
    return bars
