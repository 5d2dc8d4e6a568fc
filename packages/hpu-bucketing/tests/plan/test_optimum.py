"""Tests of the dynamic programming against all choices."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_bucketing.plan.distribution import Histogram
from hpu_bucketing.plan.optimum import grid_boundaries, optimal_boundaries, padded_size

_CELLS = st.dictionaries(st.integers(1, 40), st.integers(1, 50), min_size=1, max_size=9)


def _histogram(cells: dict[Any, Any]) -> Histogram:
    keys = sorted(cells)
    return Histogram(np.array(keys), np.array([cells[key] for key in keys]))


@given(_CELLS)
def test_boundaries_are_the_best_of_all_choices(cells: dict[int, int]) -> None:
    histogram = _histogram(cells)
    values = histogram.values.tolist()

    found = optimal_boundaries(histogram, len(values))

    assert len(found) == len(values)
    for buckets, boundaries in enumerate(found, start=1):
        choices = (
            (*rest, values[-1]) for number in range(buckets) for rest in itertools.combinations(values[:-1], number)
        )
        assert padded_size(histogram, [boundaries]) == min(padded_size(histogram, [each]) for each in choices)


@settings(max_examples=30)
@given(st.dictionaries(st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(1, 9), min_size=1, max_size=8))
def test_each_dimension_of_a_grid_is_the_best_given_the_others(cells: dict[tuple[int, int], int]) -> None:
    histogram = _histogram(cells)
    columns = [np.unique(column).tolist() for column in histogram.values.T]

    for grid in grid_boundaries(histogram, 4):
        assert np.prod([len(limits) for limits in grid]) <= 4
        size = padded_size(histogram, grid)
        for dimension, limits in enumerate(grid):
            for rest in itertools.combinations(columns[dimension][:-1], len(limits) - 1):
                other = [*grid[:dimension], (*rest, columns[dimension][-1]), *grid[dimension + 1 :]]
                assert size <= padded_size(histogram, other) * (1 + 1e-12)
