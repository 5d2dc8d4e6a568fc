"""Boundaries by the usual rules, to compare the optimum with.

Each function returns at most as many boundaries as asked for, on the alignment of the histogram's sizes. The rules are
those of the vendor's bucketing example (uniform, percentile, Lloyd-Max) and of a serving engine (exponential).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hpu_bucketing.plan.distribution import Histogram
    from hpu_bucketing.plan.optimum import Boundaries

__all__ = ["BASELINES", "exponential", "lloyd_max", "percentile", "uniform"]

_MAX_ITERATIONS: Final = 200


def uniform(histogram: Histogram, buckets: int, align: int) -> Boundaries:
    """Return boundaries at equal distances from 0 to the longest size."""
    longest = int(histogram.values[-1])
    return _on_alignment(np.linspace(0, longest, buckets + 1)[1:], longest, align)


def percentile(histogram: Histogram, buckets: int, align: int) -> Boundaries:
    """Return boundaries with an equal share of the weight in each bucket."""
    shares = np.cumsum(histogram.counts) / histogram.counts.sum()
    targets = np.arange(1, buckets + 1) / buckets
    indices = np.minimum(np.searchsorted(shares, targets - 1e-12), len(shares) - 1)
    return _on_alignment(histogram.values[indices].astype(np.float64), int(histogram.values[-1]), align)


def lloyd_max(histogram: Histogram, buckets: int, align: int) -> Boundaries:
    """Return the decision thresholds of the quantizer with the least squared error, found by Lloyd's iteration."""
    values = histogram.values.astype(np.float64)
    weights = histogram.counts.astype(np.float64)
    longest = int(histogram.values[-1])
    thresholds = np.linspace(values[0], values[-1], buckets + 1)[1:-1]
    for _ in range(_MAX_ITERATIONS):
        groups = np.searchsorted(thresholds, values)
        mass = np.bincount(groups, weights=weights, minlength=buckets)
        sums = np.bincount(groups, weights=weights * values, minlength=buckets)
        # A group without weight keeps its place between its neighbours.
        places = np.linspace(values[0], values[-1], buckets)
        levels = np.sort(np.where(mass > 0, sums / np.where(mass > 0, mass, 1), places))
        moved = (levels[1:] + levels[:-1]) / 2
        if np.allclose(moved, thresholds):
            break
        thresholds = moved
    return _on_alignment(thresholds, longest, align)


def exponential(histogram: Histogram, buckets: int, align: int) -> Boundaries:
    """Return boundaries in geometric progression from the alignment to the longest size."""
    longest = int(histogram.values[-1])
    if buckets == 1:
        return (longest,)
    return _on_alignment(np.geomspace(align, longest, buckets), longest, align)


def _on_alignment(limits: NDArray[np.float64], longest: int, align: int) -> Boundaries:
    aligned = np.ceil(np.round(limits, 6) / align).astype(int) * align
    return tuple(sorted({*(int(limit) for limit in aligned if 0 < limit < longest), longest}))


BASELINES: Final[dict[str, Callable[[Histogram, int, int], Boundaries]]] = {
    "percentile": percentile,
    "uniform": uniform,
    "Lloyd-Max": lloyd_max,
    "exponential": exponential,
}
"""Rules by name."""
