"""Boundaries of least cost, exact for one dimension.

A sample of a bucket is padded to the bucket's boundary, so the bucket (a, b] costs b times the weight of its sizes. The
least cost of k buckets is a shortest path. For the boundary v_j it is v_j G_j + min over i of (D_i - v_j G_i), where G
is the cumulated weight and D the least cost of k - 1 buckets: the lower envelope of lines, evaluated at ascending
points. The lines come in descending order of slope, so each step of the dynamic programming is linear in the number of
sizes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from hpu_bucketing.plan.distribution import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Boundaries", "grid_boundaries", "optimal_boundaries", "padded_size"]

Boundaries = tuple[int, ...]

# Coordinate descent of several dimensions ends long before; each round lowers a cost that is bounded below.
_MAX_ROUNDS = 50


def optimal_boundaries(histogram: Histogram, max_buckets: int) -> list[Boundaries]:
    """Return the boundaries of least cost for 1, 2, ... buckets.

    Args:
        histogram: Sizes of one dimension with their weights. With int weights the arithmetic is exact.
        max_buckets: Largest number of buckets; there are never more than distinct sizes.
    """
    values = [int(value) for value in histogram.values]
    # Python's numbers: exact for counts, and faster than numpy's one by one.
    cumulated = list(itertools.accumulate(histogram.counts.tolist()))
    costs: list[Any] = [value * weight for value, weight in zip(values, cumulated, strict=True)]
    choices: list[list[int]] = []
    results: list[Boundaries] = [(values[-1],)]
    for buckets in range(2, min(max_buckets, len(values)) + 1):
        costs, choice = _add_bucket(values, cumulated, costs, first=buckets - 1)
        choices.append(choice)
        results.append(_backtrack(values, choices))
    return results


def _add_bucket(values: list[int], cumulated: list[Any], costs: list[Any], first: int) -> tuple[list[Any], list[int]]:
    """Return the least costs with one more bucket, and the index of the boundary before the last one.

    Args:
        values: Candidates for a boundary.
        cumulated: Weight of the sizes up to each candidate.
        costs: Least cost of the sizes up to each candidate, with one bucket fewer.
        first: First index with enough sizes for the number of buckets.
    """
    new_costs: list[Any] = [0] * len(values)
    choice = [0] * len(values)
    envelope: list[int] = []
    best = 0
    for index in range(first, len(values)):
        line = index - 1
        while len(envelope) > 1 and _is_hidden(cumulated, costs, envelope[-2], envelope[-1], line):
            envelope.pop()
        envelope.append(line)
        best = min(best, len(envelope) - 1)
        value = values[index]
        while best + 1 < len(envelope) and (
            costs[envelope[best + 1]] - value * cumulated[envelope[best + 1]]
            <= costs[envelope[best]] - value * cumulated[envelope[best]]
        ):
            best += 1
        choice[index] = envelope[best]
        new_costs[index] = value * (cumulated[index] - cumulated[envelope[best]]) + costs[envelope[best]]
    return new_costs, choice


def _is_hidden(cumulated: list[Any], costs: list[Any], before: int, line: int, after: int) -> bool:
    """Return whether a line is nowhere below both of its neighbours in the envelope."""
    return bool(
        (costs[after] - costs[before]) * (cumulated[line] - cumulated[before])
        <= (costs[line] - costs[before]) * (cumulated[after] - cumulated[before])
    )


def _backtrack(values: list[int], choices: list[list[int]]) -> Boundaries:
    index = len(values) - 1
    boundaries = [values[index]]
    for choice in reversed(choices):
        index = choice[index]
        boundaries.append(values[index])
    return tuple(reversed(boundaries))


def padded_size(histogram: Histogram, boundaries: Sequence[Sequence[int]]) -> float:
    """Return the sum of the sizes padded to the boundaries of each dimension, each times its weight."""
    return float(_padded(histogram.values.reshape(len(histogram.values), -1), boundaries) @ histogram.counts)


def grid_boundaries(histogram: Histogram, max_shapes: int) -> Iterator[tuple[Boundaries, ...]]:
    """Yield boundaries of several dimensions, for each way to divide the number of shapes among them.

    Each dimension is the optimum for the boundaries of the others; they are improved in turn until none changes.
    """
    limits = [len(np.unique(column)) for column in histogram.values.T]
    for numbers in itertools.product(*(range(1, min(limit, max_shapes) + 1) for limit in limits)):
        if np.prod(numbers) <= max_shapes:
            yield _descend(histogram, numbers)


def _descend(histogram: Histogram, numbers: Sequence[int]) -> tuple[Boundaries, ...]:
    columns = [np.unique(column, return_inverse=True) for column in histogram.values.T]
    weights = histogram.counts.astype(np.float64)
    # The first round starts from the padding of a single bucket in the dimensions to come.
    boundaries: list[Boundaries] = [(int(values[-1]),) for values, _ in columns]
    for _ in range(_MAX_ROUNDS):
        before = list(boundaries)
        for dimension, ((values, inverse), number) in enumerate(zip(columns, numbers, strict=True)):
            without = boundaries[:dimension] + boundaries[dimension + 1 :]
            others = _padded(np.delete(histogram.values, dimension, axis=1), without)
            column = np.bincount(inverse.reshape(-1), weights=weights * others)
            boundaries[dimension] = optimal_boundaries(Histogram(values, column), number)[-1]
        if boundaries == before:
            break
    return tuple(boundaries)


def _padded(cells: NDArray[np.int64], boundaries: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the product of the padded sizes of each cell's dimensions."""
    product = np.ones(len(cells))
    for column, limits in zip(cells.T, boundaries, strict=True):
        ends = np.asarray(limits)
        product *= ends[np.searchsorted(ends, column)]
    return product
