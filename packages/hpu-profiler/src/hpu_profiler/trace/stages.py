"""Stages of a trace: Lightning runs validation within a training epoch, so a training trace may have both.

The actions of Lightning's loops show which stage a time belongs to.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hpu_profiler.trace.call_stack import call_order
from hpu_profiler.trace.intervals import difference
from hpu_profiler.trace.model import HostSpan, Span

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval
    from hpu_profiler.trace.model import Stage, Trace

#: Stages by the names that HPUProfiler's metadata and Lightning use, in the order of a report.
STAGES: Final[dict[str, Stage]] = {
    "training": "train",
    "train": "train",
    "validation": "validate",
    "validate": "validate",
    "test": "test",
    "predict": "predict",
}
_ACTION_RES: Final[dict[Stage, re.Pattern[str]]] = {
    "train": re.compile(
        r"train_dataloader_next$|run_training_batch$|training_step$|\.on_train_batch_(start|end)$|optimizer_step$"
    ),
    "validate": re.compile(r"\.(val|sanity_check)_next$|validation_step$|\.on_validation_(?!end$)\w+$"),
    "test": re.compile(r"\.test_next$|test_step$|\.on_test_\w+$"),
    "predict": re.compile(r"\.predict_next$|predict_step$|\.on_predict_\w+$"),
}
_STEP_RE: Final = re.compile(r"(training|validation|test|predict)_step$")
_ACTION_PREFIX: Final = "[pl][profile]"
_SpanT = TypeVar("_SpanT", bound=Span)


def split_stages(trace: Trace) -> tuple[Trace, ...]:
    """Return a trace for each stage; each event belongs to one of them."""
    segments = stage_segments(trace)
    base = trace.stage or (segments[0][0] if segments else "")
    others = {stage: [interval for each, interval in segments if each == stage] for stage, _ in segments}
    others.pop(base, None)
    if not others:
        return (replace(trace, stage=base),)
    parts = [
        replace(_part(trace, stage, intervals, intervals), steps=_steps(trace, intervals), bridge_metrics={})
        for stage, intervals in others.items()
    ]
    excluded = sorted(interval for intervals in others.values() for interval in intervals)
    windows = difference([trace.window], excluded)
    return (_part(trace, base, windows, excluded, outside=True), *parts)


def stage_segments(trace: Trace) -> list[tuple[Stage, Interval]]:
    """Return the time ranges of the stages within the steps of a trace, ordered by start."""
    window = trace.window
    segments: list[tuple[Stage, Interval]] = []
    for span in trace.spans:
        if not span.name.startswith(_ACTION_PREFIX) or not window[0] <= span.start < window[1]:
            continue
        stage = next((stage for stage, pattern in _ACTION_RES.items() if pattern.search(span.name)), None)
        if stage is None:
            continue
        end = min(span.end, window[1])
        if segments and segments[-1][0] == stage:
            segments[-1] = (stage, (segments[-1][1][0], max(segments[-1][1][1], end)))
        elif not segments or span.start >= segments[-1][1][1]:
            # An action of another stage within an action is not a new segment.
            segments.append((stage, (span.start, end)))
    return segments


def _part(
    trace: Trace, stage: Stage, windows: list[Interval], limits: list[Interval], *, outside: bool = False
) -> Trace:
    """Return the part of a trace that belongs to a stage: the events that start in the limits, or in none of them."""
    kinds = ("operators", "device_events", "spans", "sync_calls", "compilations")
    events: dict[str, Any] = {kind: _starting_in(getattr(trace, kind), limits, outside=outside) for kind in kinds}
    return replace(trace, stage=stage, segments=windows, frames=_clip(trace.frames, windows), **events)


def _steps(trace: Trace, windows: list[Interval]) -> list[HostSpan]:
    """Return the steps in the time ranges; each ends with the action of a step, the last one with the range."""
    actions = [span for span in trace.spans if span.name.startswith(_ACTION_PREFIX) and _STEP_RE.search(span.name)]
    steps = []
    for start, end in windows:
        # A strategy's action may contain an action of the same name.
        ends = sorted({span.end for span in _top_level(_starting_in(actions, [(start, end)]))})
        limits = [start, *ends[:-1], end]
        steps += [
            HostSpan(f"step {index}", limits[index], limits[index + 1], trace.step_thread or 0)
            for index in range(len(ends))
        ]
    return steps


def _top_level(spans: list[HostSpan]) -> list[HostSpan]:
    top_level: list[HostSpan] = []
    for span in spans:
        if not top_level or span.start >= top_level[-1].end:
            top_level.append(span)
    return top_level


def _starting_in(spans: list[_SpanT], windows: list[Interval], *, outside: bool = False) -> list[_SpanT]:
    """Return the spans that start in one of the time ranges, or with `outside` in none; both are ordered."""
    found = []
    index = 0
    for span in spans:
        while index < len(windows) and windows[index][1] <= span.start:
            index += 1
        is_inside = index < len(windows) and windows[index][0] <= span.start
        if is_inside is not outside:
            found.append(span)
    return found


def _clip(spans: list[HostSpan], windows: list[Interval]) -> list[HostSpan]:
    """Return the parts of the spans within ordered time ranges; the spans are ordered by start."""
    parts = []
    first = 0
    for span in spans:
        while first < len(windows) and windows[first][1] <= span.start:
            first += 1
        index = first
        while index < len(windows) and windows[index][0] < span.end:
            start, end = max(span.start, windows[index][0]), min(span.end, windows[index][1])
            parts.append(HostSpan(span.name, start, end, span.thread))
            index += 1
    return sorted(parts, key=call_order)
