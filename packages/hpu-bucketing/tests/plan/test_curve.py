"""Tests of the curve's knee."""

import pytest

from hpu_bucketing.plan.curve import CostModel, CurvePoint, find_knee


def _points(*padding: float, seconds: tuple[float, ...] | None = None) -> list[CurvePoint]:
    return [
        CurvePoint(((64 * (index + 1),),), index + 1, share, seconds[index] if seconds else None)
        for index, share in enumerate(padding)
    ]


def test_knee_is_the_last_bucket_that_saves_enough() -> None:
    knee, reason = find_knee(_points(0.5, 0.2, 0.1, 0.099), CostModel())

    assert knee == 2
    assert (
        reason
        == "3 buckets pad 10.0%, 2 buckets 20.0%, 4 buckets 9.9%. A bucket counts if it saves 1.0% of the tokens."
    )


def test_knee_of_a_known_speed_takes_the_least_time() -> None:
    knee, reason = find_knee(_points(0.5, 0.2, 0.1, seconds=(900.0, 700.0, 725.0)), CostModel(tokens_per_second=1.0))

    assert knee == 1
    assert reason == "The estimated time is least with 2 buckets, 700 s. 1 bucket: 200 s more; 3 buckets: 25 s more."


def test_only_choice_is_the_knee() -> None:
    assert find_knee(_points(0.5, seconds=(9.0,)), CostModel(tokens_per_second=1.0))[1].endswith(
        "There is no other choice."
    )


@pytest.mark.parametrize(("name", "value"), [("ranks", 0), ("epochs", 0), ("tokens_per_second", 0.0)])
def test_invalid_costs_are_an_error(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be .*got {value}"):
        CostModel(**{name: value})  # type: ignore[arg-type]
