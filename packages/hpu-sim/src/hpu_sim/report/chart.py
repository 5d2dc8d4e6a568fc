"""Bars over training steps, as SVG geometry for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT: Final = 48
#: Width of a bar with its gap; the page stretches the whole to its own width.
PITCH: Final = 4


@dataclass(frozen=True)
class Bar:
    """A bar.

    Attributes:
        x: Left edge.
        y: Upper edge.
        height: Its height.
        label: What the reader is told on pointing at it.
        is_first: Whether it holds the first step, with everything before it; such a bar may be cut at the top.
    """

    x: int
    y: float
    height: float
    label: str
    is_first: bool


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
    # The first bin holds the set-up, too; the others would drown beside it.
    top = max(values[1:], default=0) or values[0]
    bars = []
    for index, value in enumerate(values):
        height = round(min(value / top, 1) * HEIGHT, 2)
        label = f"{_steps(index, steps_per_bin, finished)}: {value}"
        bars.append(Bar(index * PITCH, round(HEIGHT - height, 2), height, label, is_first=index == 0))
    return Chart(title, len(values) * PITCH, HEIGHT, tuple(bars), top)


def _steps(index: int, steps_per_bin: int, finished: int) -> str:
    first = index * steps_per_bin + 1
    last = min(first + steps_per_bin - 1, finished)
    text = f"step {first}" if first == last else f"steps {first} to {last}"
    return f"{text} and everything before" if index == 0 else text
