"""Tests of the plan."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_bucketing import BucketPlan


@pytest.fixture
def lengths() -> np.ndarray[Any, Any]:
    """Lengths of 2,000 samples, most of them short."""
    return np.random.default_rng(0).lognormal(5, 0.8, 2000).astype(int) + 1


def test_curve_has_a_point_for_each_number_of_buckets(lengths: np.ndarray[Any, Any]) -> None:
    plan = BucketPlan.from_lengths(lengths, 8, align=64, max_buckets=6)

    assert [point.compilations for point in plan.curve] == [1, 2, 3, 4, 5, 6]
    padding = [point.padding_share for point in plan.curve]
    assert padding == sorted(padding, reverse=True)
    assert plan.chosen is not None
    assert plan.chosen.boundaries == (plan.boundaries,)
    assert "A bucket counts" in plan.reason


@pytest.mark.filterwarnings("ignore:.*alone makes:UserWarning")
@settings(max_examples=40)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=60), st.sampled_from([1, 64, 128]), st.integers(1, 5))
def test_padding_share_is_that_of_the_samples(lengths: list[int], align: int, buckets: int) -> None:
    plan = BucketPlan.from_lengths(lengths, 4, align=align, num_buckets=buckets)
    padded = sum(plan.fit(length)[0] for length in lengths)

    assert plan.chosen is not None
    assert plan.chosen.padding_share == pytest.approx(1 - sum(lengths) / padded)
    assert all(limit % align == 0 for limit in plan.boundaries)


@pytest.mark.filterwarnings("ignore:.*alone makes:UserWarning")
@settings(max_examples=40)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 5))
def test_each_column_follows_from_the_others(lengths: list[int], ranks: int, epochs: int) -> None:
    """Of the curve, whose last column is the time of the training."""
    plan = BucketPlan.from_lengths(
        lengths, 4, max_buckets=4, ranks=ranks, epochs=epochs, seconds_per_compilation=5.0, tokens_per_second=100.0
    )

    for point in plan.curve:
        padded = sum(lengths) / (1 - point.padding_share)
        training = epochs * padded / (ranks * 100.0)
        assert point.compilations == len({BucketPlan(point.boundaries).fit(each) for each in lengths})
        assert point.seconds == pytest.approx(training + 5.0 * point.compilations)
    assert plan.chosen == min(plan.curve, key=lambda point: point.seconds or 0.0)


def test_known_speed_decides_by_time(lengths: np.ndarray[Any, Any]) -> None:
    """Fewer buckets pay in a short training than in a long one."""
    short = BucketPlan.from_lengths(lengths, 8, align=64, tokens_per_second=10_000.0)
    long = BucketPlan.from_lengths(lengths, 8, align=64, tokens_per_second=10_000.0, epochs=1000)

    assert len(short.boundaries) < len(long.boundaries)
    assert "time is least" in long.reason


def test_two_dimensions_have_a_grid_of_shapes() -> None:
    """Long texts come with small images here, so most shapes of the grid do not occur."""
    lengths = [(100, 500)] * 10 + [(900, 200)] * 10

    plan = BucketPlan.from_lengths(lengths, 4, align=(128, 32), max_buckets=6)

    assert plan.dimensions == ((128, 1024), (224, 512))
    assert plan.chosen is not None
    assert plan.chosen.compilations == 2
    assert plan.shapes[plan.assign(lengths)[0]] == (128, 512)
    assert plan.shapes[plan.assign(lengths)[-1]] == (1024, 224)


def test_assign_and_fit_agree() -> None:
    plan = BucketPlan.from_boundaries([10, 20], [3, 5, 9])
    lengths = [(x, y) for x in range(1, 21) for y in range(1, 10)]

    assert [plan.shapes[index] for index in plan.assign(lengths)] == [plan.fit(each) for each in lengths]


def test_plan_survives_json(lengths: np.ndarray[Any, Any]) -> None:
    plan = BucketPlan.from_lengths(lengths, 8, max_buckets=4)

    assert BucketPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize("use", [lambda plan: plan.fit(21), lambda plan: plan.assign([3, 21])])
def test_sample_beyond_the_largest_bucket_is_an_error(use: Any) -> None:
    with pytest.raises(ValueError, match="length 21 does not fit into the largest bucket, 20: truncate or drop it"):
        use(BucketPlan.from_boundaries([10, 20]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive int, got 0"),
        ({"max_buckets": 0}, "number of buckets must be a positive int, got 0"),
        ({"align": (1, 1)}, r"`align` must be .* got \(1, 1\)"),
    ],
)
def test_invalid_arguments_are_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BucketPlan.from_lengths([1, 2], **{"batch_size": 1, **options})


@pytest.mark.parametrize("dimensions", [(), ((),), ((5, 3),), ((0, 3),)])
def test_invalid_boundaries_are_an_error(dimensions: Any) -> None:
    with pytest.raises(ValueError, match="boundaries"):
        BucketPlan(dimensions)


def test_boundaries_of_several_dimensions_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 dimensions: use `dimensions`"):
        _ = BucketPlan.from_boundaries([1], [2]).boundaries


def test_alignment_that_is_most_of_the_padding_is_a_warning() -> None:
    short = np.arange(5, 61)

    with pytest.warns(
        UserWarning, match=r"`align=128` alone makes 74.6% of the tokens padding, for samples of 5 to 60"
    ):
        BucketPlan.from_lengths(short, 8, align=128)
