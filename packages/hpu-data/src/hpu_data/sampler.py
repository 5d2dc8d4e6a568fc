"""Order of an epoch: the batches of each rank, its position, and the seed of each sample."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from hpu_core.samplers import RankBatchSampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["EpochSampler", "Last", "SampleKey"]

Last = Literal["drop", "repeat", "mask", "short"]
"""What becomes of samples that fill no batch on all ranks."""


class SampleKey(int):
    """Index of a sample, with what the sample needs besides.

    Attributes:
        seed: Seed of its random transforms.
        is_padding: Whether it only fills a batch, and has been or will be seen elsewhere.
    """

    seed: int
    is_padding: bool

    @classmethod
    def of(cls, index: int, seed: int, epoch: int) -> SampleKey:
        """Return the key of an index as `EpochSampler.batches` has it.

        The seed depends on the sample and the epoch alone: not on ranks, workers or the batches before it.
        """
        key = cls(~index if index < 0 else index)
        digest = hashlib.blake2b(f"{seed},{epoch},{int(key)}".encode(), digest_size=8).digest()
        # torch takes 64 bits, the generators of NumPy and Python fewer.
        key.seed, key.is_padding = int.from_bytes(digest, "big") >> 1, index < 0
        return key


class EpochSampler(RankBatchSampler):
    """Batch sampler whose epochs cover all samples over all ranks, and that resumes within an epoch.

    The order of a shuffled epoch is that of torch's `DistributedSampler` with the same seed. An epoch that is iterated
    without `set_epoch` since the one before follows it.

    Args:
        size: Number of samples.
        batch_size: Samples per batch of one rank.
        last: What becomes of samples that fill no batch on all ranks: "drop" leaves them out, "repeat" fills with the
            epoch's first samples, "mask" fills with samples that are marked as padding, and "short" makes the last
            batch shorter, with samples repeated so that ranks have equally many, as torch does.
        shuffle: Whether each epoch has a random order.
        seed: Seed of the orders and of the samples.
        num_replicas: Number of ranks; None for that of the default process group at the time of iteration, or 1.
        rank: This rank; None for that in the default process group, or 0.

    Raises:
        ValueError: `size` or `batch_size` is less than 1, nothing is left of an epoch, or `rank` is not one.
    """

    def __init__(  # noqa: PLR0913 - those of torch's samplers
        self,
        size: int,
        batch_size: int,
        *,
        last: Last = "drop",
        shuffle: bool = False,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(shuffle=shuffle, seed=seed, num_replicas=num_replicas, rank=rank)
        for name, value in (("size", size), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"`{name}` must be a positive int, got {value!r}")
        self.size, self.batch_size, self.last = size, batch_size, last
        self._is_running = False

    def __len__(self) -> int:
        """Return the number of batches of each rank in an epoch, which is the same in all epochs."""
        step = self.num_replicas * self.batch_size
        return self.size // step if self.last == "drop" else -(-self.size // step)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this rank, as `SampleKey`s, from `start` on."""
        for batch in self.batches():
            yield [SampleKey.of(index, self.seed, self.epoch) for index in batch.tolist()]

    def begin(self) -> int:
        """Begin to iterate: the current epoch, or the next one if nobody has set it since; return the first batch.

        Raises:
            ValueError: A loaded state is of another data set, batch size or number of ranks.
        """
        if self._is_running:
            self.epoch += 1
            self.start = 0
        self._is_running = True
        self.check_state()
        self.position = self.start
        return self.start

    def batches(self) -> list[NDArray[np.int64]]:
        """Return the batches of this rank from `start` on: indices, those of masked samples inverted (`~index`).

        Raises:
            ValueError: No batch is whole.
        """
        count, (replicas, rank) = len(self), self._ranks()
        if not count:
            raise ValueError(
                f"`batch_size` must leave a batch for each of {replicas} ranks, got {self.batch_size} for {self.size} "
                "samples with `drop_last=True`"
            )
        order = np.arange(self.size)
        if self.shuffle:
            order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + self.epoch)).numpy()
        total = count * replicas * self.batch_size
        if self.last == "short":
            total = -(-self.size // replicas) * replicas
        padding = np.resize(order, max(total - self.size, 0))
        order = np.concatenate([order, ~padding if self.last == "mask" else padding])[:total]
        share = order[rank::replicas]
        return [share[first : first + self.batch_size] for first in range(0, len(share), self.batch_size)][self.start :]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which decides the order. Another epoch, or one that has begun, begins with its first batch."""
        if self._is_running:
            self.position = self.start = 0
        self._is_running = False
        super().set_epoch(epoch)

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue after the batches that had been delivered when the state was saved."""
        self._is_running = False
        super().load_state_dict(state_dict)

    def shape(self) -> dict[str, int]:
        """Return what a position in an epoch depends on, as part of the state."""
        return {"samples": self.size, "batch_size": self.batch_size, "ranks": self.num_replicas}
