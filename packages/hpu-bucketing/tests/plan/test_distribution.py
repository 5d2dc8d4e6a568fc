"""Tests of lengths on the alignment."""

import numpy as np
import pytest

from hpu_bucketing.plan.distribution import as_lengths, round_up


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
