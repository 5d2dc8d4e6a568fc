"""Order of epochs over ranks, its ends, and its state."""

from typing import Any

import pytest
from torch.utils.data import DistributedSampler

from hpu_data.sampler import EpochSampler


def _sampler(rank: int = 0, ranks: int = 1, size: int = 37, batch_size: int = 4, **options: Any) -> EpochSampler:
    return EpochSampler(size, batch_size, num_replicas=ranks, rank=rank, **options)


def _epoch(sampler: EpochSampler) -> list[list[int]]:
    sampler.begin()
    return [[int(key) for key in batch] for batch in sampler]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_see_each_sample_once_an_epoch(ranks: int) -> None:
    """With masks, and in another order each epoch over all ranks."""
    samplers = [_sampler(rank, ranks, last="mask", shuffle=True, seed=3) for rank in range(ranks)]
    epochs = []
    for epoch in range(3):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        keys = [key for sampler in samplers for batch in sampler for key in batch]
        assert len({len(sampler.batches()) for sampler in samplers}) == 1
        epochs.append([int(key) for key in keys if not key.is_padding])  # type: ignore[attr-defined] # SampleKeys

    assert [sorted(epoch) for epoch in epochs] == [list(range(37))] * 3
    # Rank 0 gets samples that another rank had before.
    first = [set(epoch[: 37 // ranks]) for epoch in epochs]
    assert epochs[0] != epochs[1] != epochs[2]
    assert ranks == 1 or first[0] != first[1]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("shuffle", [True, False])
def test_order_is_that_of_torch(ranks: int, shuffle: bool) -> None:
    for rank in range(ranks):
        ours = _sampler(rank, ranks, last="short", shuffle=shuffle, seed=5)
        torchs: Any = DistributedSampler(range(37), ranks, rank, shuffle=shuffle, seed=5)  # type: ignore[arg-type] # sized
        for epoch in (0, 1):
            ours.set_epoch(epoch)
            torchs.set_epoch(epoch)
            assert sum(_epoch(ours), []) == list(torchs)  # noqa: RUF017 - short


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("drop", [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]),
        ("repeat", [[[0, 2], [4, 6], [8, 1]], [[1, 3], [5, 7], [0, 2]]]),
        ("mask", [[[0, 2], [4, 6], [8, 1]], [[1, 3], [5, 7], [0, 2]]]),
        ("short", [[[0, 2], [4, 6], [8]], [[1, 3], [5, 7], [0]]]),
    ],
)
def test_samples_that_fill_no_batch(last: Any, expected: Any) -> None:
    samplers = [_sampler(rank, 2, 9, 2, last=last) for rank in range(2)]

    assert [_epoch(sampler) for sampler in samplers] == expected
    assert [len(sampler) for sampler in samplers] == [len(batches) for batches in expected]
    masked = [key for sampler in samplers for batch in sampler for key in batch if key.is_padding]  # type: ignore[attr-defined] # SampleKeys
    assert masked == ([1, 0, 2] if last == "mask" else [])


def test_epochs_follow_each_other_unless_they_are_set() -> None:
    """As in a plain loop, and in Lightning's, which may run a validation twice in an epoch."""
    sampler = _sampler(shuffle=True)
    free = [_epoch(sampler) for _ in range(3)]
    repeated = []
    for _ in range(2):
        sampler.set_epoch(1)
        repeated.append(_epoch(sampler))

    assert sampler.epoch == 1
    assert free[0] != free[1] != free[2]
    assert repeated == [free[1], free[1]]


def test_state_continues_within_the_epoch() -> None:
    sampler, other = (_sampler(shuffle=True, seed=seed) for seed in (7, 8))
    sampler.set_epoch(2)
    whole = _epoch(sampler)
    sampler.position = 5

    other.load_state_dict(sampler.state_dict())
    # Lightning sets the epoch before it iterates.
    other.set_epoch(2)

    assert other.begin() == 5
    assert [[int(key) for key in batch] for batch in other] == whole[5:]
    assert len(other) == len(whole)
    other.set_epoch(3)
    assert len(_epoch(other)) == len(whole)


def test_state_of_another_job_is_refused() -> None:
    sampler, other = _sampler(0, 1), _sampler(0, 2)
    sampler.position = 2
    other.load_state_dict(sampler.state_dict())

    with pytest.raises(ValueError, match="must be of the same data, batch size and ranks"):
        other.begin()
    sampler.position = 0
    other.load_state_dict(sampler.state_dict())
    assert other.begin() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"size": 0}, "`size` must be a positive int, got 0"), ({"batch_size": 0}, "`batch_size` must be a positive int")],
)
def test_arguments_are_checked(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _sampler(**options)


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="must leave a batch for each of 2 ranks, got 20 for 37 samples"):
        _sampler(0, 2, batch_size=20).batches()


def test_ranks_are_those_of_the_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    sampler = EpochSampler(8, 2)
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
    for name, value in (("is_initialized", True), ("get_world_size", 4), ("get_rank", 3)):
        monkeypatch.setattr(dist, name, lambda value=value: value)

    assert (sampler.num_replicas, sampler.rank, len(sampler)) == (4, 3, 1)
    assert _epoch(sampler) == [[3, 7]]
