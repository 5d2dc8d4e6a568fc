"""HTML page of a plan: one self-contained file without scripts, fonts or links."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.common import page
from hpu_sim.common.formatting import format_bytes, format_rates, format_seconds, format_shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.plan.schema import Plan, StrategyPlan
    from hpu_sim.prediction.recording import MemorySample

# Size of the charts within their axes, in units of the view box, and the margins for the axes.
WIDTH: Final = 1000
HEIGHT: Final = 240
LEFT: Final = 105
BOTTOM: Final = 44
LANE: Final = 34
_TICKS: Final = 5
# Colours that both colour schemes can show, by category of memory and by limit.
_COLORS: Final = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#72b7b2", "#9d9d9d")
_LIMITS: Final = {
    "matrix engine": "#4c78a8",
    "vector engines": "#b279a2",
    "memory": "#f58518",
    "network": "#54a24b",
    "host": "#9d9d9d",
}


@dataclass(frozen=True)
class Tick:
    """Mark of an axis.

    Attributes:
        position: Place on the axis, in units of the chart.
        label: Text.
    """

    position: float
    label: str


@dataclass(frozen=True)
class Area:
    """Band of the memory chart.

    Attributes:
        name: Category.
        color: Its colour.
        points: Corners, as SVG has them.
    """

    name: str
    color: str
    points: str


@dataclass(frozen=True)
class Box:
    """Part of a chart with a tooltip.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        height: Height.
        color: Colour.
        label: Tooltip.
    """

    x: float
    y: float
    width: float
    height: float
    color: str
    label: str


@dataclass(frozen=True)
class MemoryChart:
    """Memory from the setup to the last planned step.

    Attributes:
        areas: Stacked categories; those without memory are left out.
        strips: Invisible strips with the tooltip of each point.
        steps: Begin of the setup and of each step.
        ticks: Marks of the vertical axis.
        limit: Height of the usable memory; None if it is above the chart.
    """

    areas: tuple[Area, ...]
    strips: tuple[Box, ...]
    steps: tuple[Tick, ...]
    ticks: tuple[Tick, ...]
    limit: float | None


@dataclass(frozen=True)
class Timeline:
    """Slow prediction of a step, a lane per cause.

    Attributes:
        lanes: Name and upper edge of each lane.
        boxes: Parts of the lanes, as high as the share that the cause limits.
        ticks: Marks of the time axis.
        height: Height of all lanes.
    """

    lanes: tuple[Tick, ...]
    boxes: tuple[Box, ...]
    ticks: tuple[Tick, ...]
    height: int


def render(plan: Plan) -> str:
    """Return the page."""
    return page.render(
        "plan/page.html.jinja",
        title="Gaudi plan",
        badge=plan.disclaimer,
        command=shlex.join(plan.command),
        plan=plan,
        charts=[(each, memory_chart(each, plan.memory_categories), timeline(each)) for each in plan.strategies],
        notes=dict.fromkeys(note for each in plan.strategies for note in each.notes),
        rates=format_rates,
        shares=format_shares,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        bottom=BOTTOM,
        lane=LANE,
    )


def memory_chart(plan: StrategyPlan, categories: Sequence[str]) -> MemoryChart:
    """Return the chart of a plan's memory."""
    named = [(part.name, point) for part in plan.history for point in part.points]
    points = [point for _, point in named]
    ticks, top = _ticks(max((sum(point.by_category) for point in points), default=0), binary=True)
    width = WIDTH / max(len(points), 1)
    below = [0] * len(points)
    areas = []
    for index, name in enumerate(categories):
        above = [base + point.by_category[index] for base, point in zip(below, points, strict=True)]
        if above != below:
            outline = [*_corners(above, top, width), *reversed(_corners(below, top, width))]
            areas.append(Area(name, _COLORS[index % len(_COLORS)], " ".join(outline)))
        below = above
    strips = tuple(
        Box(round(index * width, 2), 0, round(width, 2), HEIGHT, "transparent", _describe(name, point, categories))
        for index, (name, point) in enumerate(named)
    )
    begins = [0]
    for part in plan.history:
        begins.append(begins[-1] + len(part.points))
    steps = tuple(Tick(round(begin * width, 1), part.name) for begin, part in zip(begins, plan.history, strict=False))
    limit = HEIGHT * (1 - plan.usable_bytes / top) if plan.usable_bytes <= top else None
    return MemoryChart(
        tuple(areas),
        strips,
        steps,
        tuple(Tick(HEIGHT * (1 - value / top), format_bytes(value)) for value in ticks),
        limit,
    )


def _describe(name: str, point: MemorySample, categories: Sequence[str]) -> str:
    parts = (
        f"{category} {format_bytes(size)}" for category, size in zip(categories, point.by_category, strict=True) if size
    )
    return f"{name}, {point.phase}: {format_bytes(sum(point.by_category))} ({', '.join(parts)})"


def _corners(values: list[int], top: float, width: float) -> list[str]:
    """Return the upper edge of values as stairs: memory changes at once."""
    heights = [HEIGHT * (1 - value / top) for value in values]
    return [
        corner
        for index, height in enumerate(heights)
        for corner in (f"{index * width:.1f},{height:.1f}", f"{(index + 1) * width:.1f},{height:.1f}")
    ]


def _ticks(highest: float, *, binary: bool = False) -> tuple[list[float], float]:
    """Return about :data:`_TICKS` round values from 0, and the end of the axis."""
    base = 1.0
    if binary:
        while highest / base >= 1024:  # noqa: PLR2004 - a unit of bytes
            base *= 1024
    rough = max(highest / base / _TICKS, 1e-12)
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough) * base
    count = max(math.ceil(highest / size), 1)
    return [index * size for index in range(count + 1)], count * size


def timeline(plan: StrategyPlan) -> Timeline:
    """Return the chart of a step."""
    causes = [name for name in _LIMITS if any(span.bound == name for span in plan.spans)]
    values, end = _ticks(plan.time.seconds or 1.0)
    return Timeline(
        lanes=tuple(Tick(index * LANE, name) for index, name in enumerate(causes)),
        boxes=tuple(_boxes(plan, causes, end)),
        ticks=tuple(Tick(round(value / end * WIDTH, 1), format_seconds(value) if value else "0") for value in values),
        height=LANE * len(causes),
    )


def _boxes(plan: StrategyPlan, causes: list[str], end: float) -> Iterator[Box]:
    for span in plan.spans:
        if span.bound not in causes:
            continue
        height = round((LANE - 4) * max(span.share, 0.08), 1)
        where = f" of {span.module}" if span.module else ""
        yield Box(
            round(span.start / end * WIDTH, 2),
            round((causes.index(span.bound) + 1) * LANE - 2 - height, 1),
            max(round((span.end - span.start) / end * WIDTH, 2), 0.5),
            height,
            _LIMITS[span.bound],
            f"{span.phase}, {format_seconds(span.start)} to {format_seconds(span.end)}: {span.bound} limits "
            f"{span.share:.0%}, most by {span.name}{where}",
        )
