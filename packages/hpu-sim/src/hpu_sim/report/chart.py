"""Bars over training steps, as SVG geometry for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT: Final = 48
#: Width of a bar with its gap; the page stretches the whole to its own width.
BAR_WIDTH: Final = 4


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        x: Left edge.
        y: Upper edge.
        height: Its height.
        label: What the reader is told on pointing at it.
        is_edge: Whether it holds the first or the last step, with everything before or behind; such a bar may be cut at
            the top.
    """

    x: int
    y: float
    height: float
    label: str
    is_edge: bool


@dataclass(frozen=True)
class Chart:
    """A series of bars.

    Attributes:
        title: What is counted.
        width: Width of the drawing.
        height: Height of the drawing.
        bars: The bars, from the first step to the last.
        top: The value at the top, per bar.
    """

    title: str
    width: int
    height: int
    bars: tuple[Bar, ...]
    top: int


def draw(title: str, values: Sequence[int], steps_per_bin: int, finished: int) -> Chart | None:
    """Return the chart of a series.

    Args:
        title: What is counted.
        values: Sums, by bin.
        steps_per_bin: Steps per bin.
        finished: Steps in all of them.

    Returns:
        The chart; None where there is nothing to see.
    """
    if not any(values):
        return None
    # The first bin holds the set-up, too, and the last one what follows the training: the others would drown beside.
    top = max(values[1:-1], default=0) or max(values)
    bars = []
    for index, value in enumerate(values):
        height = round(min(value / top, 1) * HEIGHT, 2)
        label = f"{_steps(index, steps_per_bin, finished)}: {value}"
        is_edge = index in {0, len(values) - 1}
        bars.append(Bar(index * BAR_WIDTH, round(HEIGHT - height, 2), height, label, is_edge))
    return Chart(title, len(values) * BAR_WIDTH, HEIGHT, tuple(bars), top)


def _steps(index: int, steps_per_bin: int, finished: int) -> str:
    first = index * steps_per_bin + 1
    last = min(first + steps_per_bin - 1, finished)
    text = f"step {first}" if first == last else f"steps {first} to {last}"
    if index == 0:
        return f"{text} and everything before"
    return f"{text} and everything behind" if last == finished else text
