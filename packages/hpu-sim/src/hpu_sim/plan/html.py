"""HTML page of a plan: one self-contained file without scripts, fonts or links."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.common import page
from hpu_sim.common.formatting import format_seconds

if TYPE_CHECKING:
    from hpu_sim.plan.schema import Plan, StrategyPlan

# Size of the charts, in units of the view box.
_WIDTH: Final = 1000
_HEIGHT: Final = 220
_LANE: Final = 30
# Colours that both colour schemes can show, by category of memory and by limit.
_COLORS: Final = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#72b7b2", "#9d9d9d")
_LIMITS: Final = {
    "matrix engine": "#4c78a8",
    "vector engines": "#b279a2",
    "memory": "#f58518",
    "network": "#54a24b",
    "host": "#9d9d9d",
}
_LANES: Final = ("compute", "network")


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
    """Part of the timeline chart.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        color: Colour of what limits it.
        label: Tooltip.
    """

    x: float
    y: float
    width: float
    color: str
    label: str


def render(plan: Plan) -> str:
    """Return the page."""
    return page.render(
        "plan/page.html.jinja",
        title="Gaudi plan",
        badge=plan.disclaimer,
        command=shlex.join(plan.command),
        plan=plan,
        charts=[(each, memory_areas(each, plan.memory_categories), timeline(each)) for each in plan.strategies],
        notes=dict.fromkeys(note for each in plan.strategies for note in each.notes),
        limits=_LIMITS,
        width=_WIDTH,
        height=_HEIGHT,
        lane=_LANE,
        lanes=_LANES,
    )


def memory_areas(plan: StrategyPlan, categories: tuple[str, ...]) -> list[Area]:
    """Return the memory over a step as stacked areas; categories without memory are left out."""
    points = plan.memory.points
    top = max((sum(point.by_category) for point in points), default=0) or 1
    below = [0] * len(points)
    areas = []
    for index, name in enumerate(categories):
        above = [base + point.by_category[index] for base, point in zip(below, points, strict=True)]
        if above != below:
            outline = [*_corners(above, top), *reversed(_corners(below, top))]
            areas.append(Area(name, _COLORS[index], " ".join(outline)))
        below = above
    return areas


def _corners(values: list[int], top: int) -> list[str]:
    step = _WIDTH / max(len(values) - 1, 1)
    return [f"{index * step:.1f},{_HEIGHT * (1 - value / top):.1f}" for index, value in enumerate(values)]


def timeline(plan: StrategyPlan) -> list[Box]:
    """Return the slow prediction of a step as boxes on two lanes."""
    total = plan.time.slow_seconds or 1.0
    return [
        Box(
            round(span.start / total * _WIDTH, 2),
            _LANES.index(span.stream) * _LANE,
            max(round((span.end - span.start) / total * _WIDTH, 2), 0.5),
            _LIMITS[span.bound],
            f"{span.name} in {span.phase}, {format_seconds(span.end - span.start)}, limited by {span.bound}",
        )
        for span in plan.spans
    ]
