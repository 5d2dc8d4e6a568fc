"""Tests of the batch sampler."""

import json
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_bucketing import BucketBatchSampler, BucketPlan

_PLAN = BucketPlan.from_boundaries([4, 8, 16])
_GRID = BucketPlan.from_boundaries([4, 8], [2, 6])
_LENGTHS = st.lists(st.integers(1, 16), min_size=1, max_size=60)
_SIZES = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 5)}), st.fixed_dictionaries({"max_tokens": st.integers(16, 64)})
)
_OPTIONS = st.fixed_dictionaries({"shuffle": st.booleans(), "drop_last": st.booleans(), "seed": st.integers(0, 3)})


def _samplers(ranks: int, *arguments: Any, **options: Any) -> list[BucketBatchSampler]:
    return [BucketBatchSampler(*arguments, num_replicas=ranks, rank=rank, **options) for rank in range(ranks)]


def _bucket(plan: BucketPlan, lengths: list[Any], batch: list[int]) -> tuple[int, ...]:
    """Return the bucket that a collate function pads a batch to."""
    sizes = [lengths[index] if isinstance(lengths[index], tuple) else (lengths[index],) for index in batch]
    return plan.fit([max(column) for column in zip(*sizes, strict=True)])


@given(_LENGTHS, st.integers(1, 4), _SIZES, _OPTIONS)
def test_ranks_share_bucket_and_number_of_batches(
    lengths: list[int], ranks: int, size: dict[str, int], options: dict[str, Any]
) -> None:
    samplers = _samplers(ranks, lengths, _PLAN, **size, **options)
    epochs = [list(sampler) for sampler in samplers]

    assert {len(epoch) for epoch in epochs} == {len(sampler) for sampler in samplers}
    for step in zip(*epochs, strict=True):
        buckets = {_bucket(_PLAN, lengths, batch) for batch in step}
        assert len(buckets) == 1
        assert {len(batch) for batch in step} == {samplers[0].batch_sizes[_PLAN.shapes.index(buckets.pop())]}


@given(_LENGTHS, st.integers(1, 4), _SIZES, _OPTIONS)
def test_every_sample_is_drawn_once_but_for_the_rest(
    lengths: list[int], ranks: int, size: dict[str, int], options: dict[str, Any]
) -> None:
    """Samples that fill no batch are left out with `drop_last`, otherwise repeated; two batches a bucket at most."""
    samplers = _samplers(ranks, lengths, _PLAN, **size, **options)
    counts = Counter(chain.from_iterable(chain.from_iterable(samplers)))
    most = sum(2 * ranks * size for size in samplers[0].batch_sizes)

    if options["drop_last"]:
        assert set(counts.values()) <= {1}
        assert len(lengths) - len(counts) < most
    else:
        assert set(counts) == set(range(len(lengths)))
        assert counts.total() - len(lengths) < most


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=40), st.integers(1, 3), _OPTIONS)
def test_two_dimensions_keep_ranks_in_one_shape(
    lengths: list[tuple[int, int]], ranks: int, options: dict[str, Any]
) -> None:
    samplers = _samplers(ranks, lengths, _GRID, batch_size=2, **options)
    epochs = [list(sampler) for sampler in samplers]

    assert all(len({_bucket(_GRID, lengths, batch) for batch in step}) == 1 for step in zip(*epochs, strict=True))
    if not options["drop_last"]:
        drawn = set(chain.from_iterable(chain.from_iterable(epochs)))
        assert drawn == set(range(len(lengths)))


@given(_LENGTHS, st.integers(1, 3), st.integers(0, 3), st.data())
def test_resumption_equals_no_interruption(lengths: list[int], ranks: int, epoch: int, data: st.DataObject) -> None:
    """The state is that of any rank, and survives JSON."""
    rank = data.draw(st.integers(0, ranks - 1))
    sampler, other = (
        BucketBatchSampler(lengths, _PLAN, batch_size=2, num_replicas=ranks, rank=rank, seed=seed) for seed in (7, 0)
    )
    sampler.set_epoch(epoch)
    complete = list(sampler)
    position = data.draw(st.integers(0, len(complete)))
    batches = iter(sampler)
    for _ in range(position):
        next(batches)
    if position == 0:
        sampler.position = 0

    other.load_state_dict(json.loads(json.dumps(sampler.state_dict())))

    assert list(other) == complete[position:]
    assert list(other) == complete


def test_leftover_samples_fill_a_longer_bucket() -> None:
    sampler = BucketBatchSampler([4, 4, 4, 8], _PLAN, batch_size=2, shuffle=False)

    assert list(sampler) == [[0, 1], [3, 2]]
    assert [sampler.batch_info(step).shape for step in range(2)] == [(4,), (8,)]


def test_each_epoch_has_another_order() -> None:
    sampler = BucketBatchSampler(range(1, 17), _PLAN, batch_size=2)
    first = list(sampler)
    sampler.set_epoch(1)

    assert list(sampler) != first


def test_the_epoch_of_the_state_continues() -> None:
    """Lightning sets the epoch again after it has restored the state."""
    sampler = BucketBatchSampler(range(1, 17), _PLAN, batch_size=2)
    sampler.load_state_dict({"epoch": 3, "position": 5, "seed": 0, "num_batches": len(sampler)})
    sampler.set_epoch(3)

    assert len(list(sampler)) == len(sampler) - 5


def test_batch_info_counts_tokens() -> None:
    sampler = BucketBatchSampler([3, 4, 15, 16], _PLAN, batch_size=2, shuffle=False)

    infos = [sampler.batch_info(step) for step in range(len(sampler))]
    assert [(info.shape, info.samples) for info in infos] == [((4,), 2), ((16,), 2)]
    assert [(info.tokens, info.padded_tokens) for info in infos] == [(7, 8), (31, 32)]


def test_batches_of_constant_tokens_have_more_short_samples() -> None:
    assert BucketBatchSampler([1], _PLAN, max_tokens=33).batch_sizes == (8, 4, 2)


def test_every_shape_that_occurs_has_a_batch_for_warm_up() -> None:
    sampler = BucketBatchSampler([3, 3, 3, 16], _PLAN, batch_size=2)

    assert sampler.samples_of_shapes() == {(16,): [3, 3], (4,): [0, 1]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either `batch_size` or `max_tokens`, got None and None"),
        ({"batch_size": 1, "max_tokens": 99}, "either `batch_size` or `max_tokens`, got 1 and 99"),
        ({"batch_size": 0}, "`batch_size` must be a positive int, got 0"),
        ({"max_tokens": 15}, "`max_tokens` must be at least the largest bucket, 16, got 15"),
        ({"batch_size": 1, "rank": 1}, "`rank` must be from 0 to `num_replicas` - 1, got 1 of None"),
        ({"batch_size": 1, "rank": 2, "num_replicas": 2}, "got 2 of 2"),
    ],
)
def test_invalid_arguments_are_an_error(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BucketBatchSampler([1], _PLAN, **options)  # type: ignore[arg-type]


def test_state_of_another_number_of_batches_is_an_error() -> None:
    sampler = BucketBatchSampler(range(1, 17), _PLAN, batch_size=2)
    sampler.load_state_dict({"epoch": 0, "position": 5, "seed": 0, "num_batches": 99})

    with pytest.raises(ValueError, match=r"\{'num_batches': 8\}, got \{'num_batches': 99\}: resume with"):
        next(iter(sampler))
