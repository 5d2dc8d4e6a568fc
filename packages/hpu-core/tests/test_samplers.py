"""Tests of the base of batch samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch.utils.data import DistributedSampler

from hpu_core.samplers import RankBatchSampler

if TYPE_CHECKING:
    from collections.abc import Iterator


class Batches(RankBatchSampler):
    """Sampler of a number of batches of one index each."""

    def __init__(self, size: int = 4, num_replicas: int | None = None, rank: int | None = None) -> None:
        super().__init__(shuffle=False, seed=3, num_replicas=num_replicas, rank=rank)
        self.size = size

    def __iter__(self) -> Iterator[list[int]]:
        self.check_state()
        for index in range(self.start, self.size):
            self.position = index + 1
            yield [index]

    def __len__(self) -> int:
        return self.size

    def shape(self) -> dict[str, int]:
        return {"size": self.size}


def test_lightning_takes_it_for_a_distributed_sampler() -> None:
    assert isinstance(Batches(), DistributedSampler)


def test_ranks_without_a_process_group() -> None:
    assert (Batches().num_replicas, Batches().rank) == (1, 0)
    assert (Batches(num_replicas=4, rank=3).num_replicas, Batches(num_replicas=4, rank=3).rank) == (4, 3)


@pytest.mark.parametrize(("num_replicas", "rank"), [(2, 2), (2, -1), (2, None), (None, 0)])
def test_impossible_rank(num_replicas: int | None, rank: int | None) -> None:
    with pytest.raises(ValueError, match="`rank` must be from 0 to `num_replicas` - 1"):
        Batches(num_replicas=num_replicas, rank=rank)


def test_state_continues_after_the_batches_that_were_delivered() -> None:
    first, second = Batches(), Batches()
    iterator = iter(first)
    next(iterator)

    second.load_state_dict(first.state_dict())

    assert list(second) == list(iterator)


def test_state_of_other_data_is_an_error_when_the_epoch_goes_on() -> None:
    sampler = Batches()
    sampler.load_state_dict({"epoch": 0, "position": 1, "seed": 3, "size": 9})

    with pytest.raises(ValueError, match=r"of the same data, .*\{'size': 4\}, got \{'size': 9\}"):
        list(sampler)


def test_another_epoch_begins_with_its_first_batch() -> None:
    sampler = Batches()
    sampler.load_state_dict({"epoch": 0, "position": 1, "seed": 3, "size": 9})

    sampler.set_epoch(1)

    assert len(list(sampler)) == 4
