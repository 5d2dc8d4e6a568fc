"""Gates of benchmarks: ratios of two times that are measured until their median is known well enough to judge."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Half the width of the interval of the median, relative to the median.
SPREAD = 0.01
_MIN_SAMPLES = 8
# Steps of each kind that are not measured.
_WARM_UP = 20


@dataclass(frozen=True)
class Gate:
    """A ratio and its limit.

    Attributes:
        name: What takes the time, and what it is compared with.
        limit: Largest ratio that is promised.
        samples: Ratios of measurements that follow each other.
    """

    name: str
    limit: float
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.samples)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval that has the true median with a probability of 95 %, from the order of the samples alone."""
        count, ordered = len(self.samples), sorted(self.samples)
        # The number of samples below the median is binomial.
        lowest = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
        return ordered[lowest], ordered[count - 1 - lowest]

    @property
    def spread(self) -> float:
        """Half the width of the interval, relative to the median."""
        low, high = self.interval
        return (high - low) / 2 / self.median

    @property
    def verdict(self) -> str:
        """Judgement: "met", "missed", or "not judged" while the limit is inside a wide interval."""
        low, high = self.interval
        if len(self.samples) < _MIN_SAMPLES or (low <= self.limit < high and self.spread > SPREAD):
            return "not judged"
        return "met" if self.median <= self.limit else "missed"


def measure(name: str, limit: float, sample: Callable[[], float], *, most: int) -> Gate:
    """Measure until the gate can be judged and the spread is small."""
    samples: list[float] = []
    while True:
        samples += [sample() for _ in range(min(_MIN_SAMPLES, most - len(samples)))]
        gate = Gate(name, limit, tuple(samples))
        if len(samples) >= most or (gate.spread <= SPREAD and gate.verdict != "not judged"):
            return gate


def ratio(step: Callable[[], object], reference: Callable[[], object]) -> float:
    """Run a reference and then a step, and return the step's time relative to the reference's."""
    begin = time.perf_counter()
    reference()
    middle = time.perf_counter()
    step()
    return (time.perf_counter() - middle) / (middle - begin)


def measure_steps(
    name: str, limit: float, step: Callable[[], object], reference: Callable[[], object], *, most: int
) -> Gate:
    """Measure steps of two kinds, which take turns, as `measure` does, after a warm-up."""
    for _ in range(_WARM_UP):
        ratio(step, reference)
    return measure(name, limit, lambda: ratio(step, reference), most=most)


def report(gates: Sequence[Gate]) -> int:
    """Print a row for each gate; return how many are not met, 1 at most, which is the exit code of a benchmark."""
    width = max(len(gate.name) for gate in gates)
    print(f"{'':{width}}  {'median':>8} {'spread':>8} {'limit':>8} {'samples':>8}")
    for gate in gates:
        spread = f"±{100 * gate.spread:.1f} %"
        row = f"{gate.name:{width}}  {gate.median:7.3f}x {spread:>8} {gate.limit:7.2f}x {len(gate.samples):8}"
        print(f"{row}  {gate.verdict}", flush=True)
    return int(any(gate.verdict != "met" for gate in gates))
