"""Timeline of a trace as geometry: tracks for the steps, the host and each engine of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hpu_profiler._formatting import format_percent, format_time
from hpu_profiler.analysis.idle_time import host_activity
from hpu_profiler.trace.intervals import intersection, length, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import DeviceEvent, DeviceEventKind, Trace

__all__ = ["MAX_BARS", "WIDTH", "Bar", "CssClass", "Track", "timeline"]

#: Width of a track; the page scales it.
WIDTH: Final = 1000
#: Largest number of bars in a track. With more events, a bar stands for an equal slice of time.
MAX_BARS: Final = 400
# Bars below these values cannot be seen.
_MIN_WIDTH: Final = 0.3
_MIN_OPACITY: Final = 0.08

CssClass = Literal["step", "compilation", "data-loading", "host-sync", "kernel", "memcpy", "memset", "collective"]
_CAUSE_CLASSES: Final[dict[str, CssClass]] = {
    "compilation": "compilation",
    "data loading": "data-loading",
    "host sync": "host-sync",
}
_DEVICE_CLASSES: Final[tuple[DeviceEventKind, ...]] = ("kernel", "memcpy", "memset", "collective")
_ENGINES: Final = ("MME", "TPC", "DMA", "NIC")


@dataclass(frozen=True, slots=True)
class Bar:
    """Rectangle in a track.

    Attributes:
        x: Left edge, from 0 to `WIDTH`.
        width: Width in the same unit.
        css_class: Category that decides the color.
        label: Text of the tooltip.
        opacity: Fraction of the bar's time that events cover.
    """

    x: float
    width: float
    css_class: CssClass
    label: str
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Track:
    """Row of bars.

    Attributes:
        name: Name of the track.
        bars: Bars from left to right.
    """

    name: str
    bars: tuple[Bar, ...]


def timeline(trace: Trace) -> tuple[Track, ...]:
    """Return the tracks of a trace, without empty ones."""
    engines: dict[str, list[DeviceEvent]] = {}
    for event in trace.device_events:
        engines.setdefault(event.track, []).append(event)
    names = sorted(engines, key=lambda name: (_ENGINES.index(name) if name in _ENGINES else len(_ENGINES), name))
    tracks = [
        Track("steps", _step_bars(trace)),
        Track("host", _host_bars(trace)),
        *(Track(name, _device_bars(engines[name], trace.window)) for name in names),
    ]
    return tuple(track for track in tracks if track.bars)


def _step_bars(trace: Trace) -> tuple[Bar, ...]:
    return tuple(
        _bar(step.interval, trace.window, "step", f"{step.name.rpartition('#')[2]}: {format_time(step.duration)}")
        for step in trace.steps
    )


def _host_bars(trace: Trace) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for cause, spans in host_activity(trace).items():
        covered = intersection(union(span.interval for span in spans), [trace.window])
        css_class = _CAUSE_CLASSES[cause]
        if len(covered) > MAX_BARS:
            bars += _density_bars(covered, trace.window, css_class, cause)
        else:
            bars += [
                _bar((start, end), trace.window, css_class, f"{cause}: {format_time(end - start)}")
                for start, end in covered
            ]
    return tuple(bars)


def _device_bars(events: Sequence[DeviceEvent], window: Interval) -> tuple[Bar, ...]:
    visible = [event for event in events if event.end > window[0] and event.start < window[1]]
    if len(visible) <= MAX_BARS:
        return tuple(
            _bar(event.interval, window, event.kind, f"{event.name}: {format_time(event.duration)}")
            for event in visible
        )
    bars: list[Bar] = []
    for kind in _DEVICE_CLASSES:
        covered = union(event.interval for event in visible if event.kind == kind)
        bars += _density_bars(intersection(covered, [window]), window, kind, kind)
    return tuple(bars)


def _bar(interval: Interval, window: Interval, css_class: CssClass, label: str) -> Bar:
    scale = WIDTH / ((window[1] - window[0]) or 1.0)
    start, end = max(interval[0], window[0]), min(interval[1], window[1])
    return Bar(
        round((start - window[0]) * scale, 2), round(max((end - start) * scale, _MIN_WIDTH), 2), css_class, label
    )


def _density_bars(covered: list[Interval], window: Interval, css_class: CssClass, name: str) -> list[Bar]:
    """Return a bar for each slice of time with events, as opaque as events cover the slice."""
    slice_time = (window[1] - window[0]) / MAX_BARS
    slice_width = WIDTH / MAX_BARS
    bars = []
    for index in range(MAX_BARS):
        start = window[0] + index * slice_time
        fraction = length(intersection(covered, [(start, start + slice_time)])) / slice_time
        if fraction > 0:
            label = f"{name}: {format_percent(fraction)} of {format_time(slice_time)}"
            opacity = round(max(fraction, _MIN_OPACITY), 2)
            bars.append(Bar(round(index * slice_width, 2), slice_width, css_class, label, opacity))
    return bars
