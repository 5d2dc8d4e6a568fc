"""Tests of histograms and batch maxima."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_bucketing.plan.distribution import as_lengths, batch_max_lengths, cell_histogram, round_up


@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(1, 4))
def test_batch_maxima_are_those_of_all_batches(lengths: list[int], draws: int) -> None:
    """Drawing without replacement gives every combination of samples the same probability."""
    draws = min(draws, len(lengths))
    batches = list(itertools.combinations(lengths, draws))
    expected = Counter(max(batch) for batch in batches)

    histogram = batch_max_lengths(cell_histogram(as_lengths(lengths)), draws)

    shares = histogram.counts / histogram.counts.sum()
    for value, share in zip(histogram.values, shares, strict=True):
        assert share == pytest.approx(expected[int(value)] / len(batches), abs=1e-12)


def test_more_draws_than_samples_draw_all() -> None:
    histogram = batch_max_lengths(cell_histogram(as_lengths([3, 5])), 10)

    assert dict(zip(histogram.values.tolist(), histogram.counts.tolist(), strict=True)) == {3: 0.0, 5: 1.0}


def test_lengths_are_rounded_up_in_each_dimension() -> None:
    assert round_up(np.array([[1, 10], [64, 11]]), (64, 10)).tolist() == [[64, 10], [64, 20]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "at least one length"),
        ([0], "at least 1, got 0"),
        ([1.5], "must be ints, got float64"),
        (np.ones((1, 1, 1), dtype=int), "shape"),
    ],
)
def test_invalid_lengths_are_an_error(lengths: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_lengths(lengths)  # type: ignore[arg-type]
