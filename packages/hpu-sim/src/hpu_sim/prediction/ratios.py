"""Ratio of two predictions, whose errors are correlated: what is uncertain about both largely cancels.

The ratio of two strategies, generations or batch sizes is what a choice needs. Each uncertain figure of the hardware
moves to the ends of its range in both predictions at once, and the changes of the ratio add in quadrature. A figure
that each generation has for itself moves alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_sim.prediction.hardware import from_ranges, ranges, residual, shared_names
from hpu_sim.prediction.time_model import mode_of, step_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpu_sim.prediction.recording import Recording

    #: Ranges of figures of the hardware in place of the file's, by name.
    Changed = Mapping[str, tuple[float, float]]
    Pair = tuple[Changed, Changed]
    Quotient = Callable[[Pair], float]


@dataclass(frozen=True)
class Ratio:
    """Predicted step of one plan divided by that of another.

    Attributes:
        low: Low end of the range.
        middle: With all figures in the middle of their ranges.
        high: High end.
    """

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        """Return the range: "1.08 to 1.15"."""
        return f"{self.low:.3g} to {self.high:.3g}"


def ratio(of: tuple[Recording, str], to: tuple[Recording, str]) -> Ratio:
    """Return the step of one recording and generation divided by that of another."""
    return combine(lambda pair: _seconds(of, pair[0]) / _seconds(to, pair[1]), of[1], to[1])


def combine(quotient: Quotient, first: str, second: str, unexplained: float | None = None) -> Ratio:
    """Return the range of a quotient of two generations' predictions.

    Args:
        quotient: Function of the changed ranges of both, which returns the quotient in the middle of all others.
        first: Generation of the dividend.
        second: Generation of the divisor.
        unexplained: Logarithm of the factor by which a ratio may be off beyond the ranges; None for the fitted one.
    """
    middle = quotient(({}, {}))
    below = above = (residual("ratio") if unexplained is None else unexplained) ** 2
    for changes in _changes(first, second):
        logs = [math.log(quotient(pair) / middle) for pair in changes]
        below += min(*logs, 0.0) ** 2
        above += max(*logs, 0.0) ** 2
    return Ratio(middle * math.exp(-math.sqrt(below)), middle, middle * math.exp(math.sqrt(above)))


def _changes(first: str, second: str) -> Iterator[tuple[Pair, Pair]]:
    """Yield both ends of each uncertain figure, as changed ranges of both generations."""
    shared = shared_names()
    nothing: Changed = {}
    for name, (slow, fast) in ranges(first).items():
        low, high = {name: (slow, slow)}, {name: (fast, fast)}
        if name in shared or first == second:
            yield (low, low), (high, high)
        else:
            yield (low, nothing), (high, nothing)
    for name, (slow, fast) in ranges(second).items() if first != second else ():
        if name not in shared:
            yield (nothing, {name: (slow, slow)}), (nothing, {name: (fast, fast)})


def _seconds(case: tuple[Recording, str], changed: Changed) -> float:
    recording, generation = case
    device = from_ranges(generation, "middle", changed)
    return step_seconds(recording.steady, device, recording.devices, mode=mode_of(recording))
