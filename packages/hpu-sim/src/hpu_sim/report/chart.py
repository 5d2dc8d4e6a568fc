"""SVG geometry of bar charts over training steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT: Final = 48
#: Width of a bar including its gap, in units of the view box.
BAR_WIDTH: Final = 4


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Attributes:
        x: Left edge.
        y: Upper edge.
        height: Height.
        label: Tooltip.
        is_edge: Whether the bar includes the first or the last step, with set-up or teardown. Such a bar may be clipped
            at the top.
    """

    x: int
    y: float
    height: float
    label: str
    is_edge: bool


@dataclass(frozen=True)
class Chart:
    """A bar chart.

    Attributes:
        title: Title.
        width: Width of the drawing.
        bars: Bars, from the first step to the last.
        top: Value at the top of the chart.
    """

    title: str
    width: int
    bars: tuple[Bar, ...]
    top: int


def draw(title: str, values: Sequence[int], steps_per_bin: int, finished: int) -> Chart | None:
    """Return the bar chart of a histogram; None if all values are 0."""
    if not any(values):
        return None
    # Set-up and teardown in the first and the last bin would dwarf all others.
    top = max(values[1:-1], default=0) or max(values)
    bars = []
    for index, value in enumerate(values):
        height = round(min(value / top, 1) * HEIGHT, 2)
        label = f"{_steps(index, steps_per_bin, finished)}: {value}"
        is_edge = index in {0, len(values) - 1}
        bars.append(Bar(index * BAR_WIDTH, round(HEIGHT - height, 2), height, label, is_edge))
    return Chart(title, len(values) * BAR_WIDTH, tuple(bars), top)


def _steps(index: int, steps_per_bin: int, finished: int) -> str:
    first = index * steps_per_bin + 1
    last = min(first + steps_per_bin - 1, finished)
    text = f"step {first}" if first == last else f"steps {first} to {last}"
    if index == 0:
        return f"{text} and set-up"
    return f"{text} and teardown" if last == finished else text
