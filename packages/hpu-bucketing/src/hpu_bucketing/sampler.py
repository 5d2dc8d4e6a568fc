"""Batch sampler that keeps all ranks in the same bucket at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hpu_bucketing.plan.distribution import as_lengths
from hpu_core.samplers import RankBatchSampler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["BatchInfo", "BucketBatchSampler"]

_Step: TypeAlias = "tuple[int, NDArray[np.int64]]"
"""Bucket of a step, and the samples of all ranks."""


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """Batch of this rank, known without reading its tensors.

    Attributes:
        shape: Padded sizes of its bucket.
        samples: Number of samples.
        tokens: Sum of the samples' sizes.
        padded_tokens: The same with padding.
    """

    shape: tuple[int, ...]
    samples: int
    tokens: int
    padded_tokens: int


class BucketBatchSampler(RankBatchSampler):
    """Batch sampler whose batches have samples of one bucket, the same bucket on all ranks at each step.

    Every shape is compiled once by all ranks together, and no rank waits for the longer batch of another one. All ranks
    have equally many batches. All batches of a bucket have the same number of samples, because a smaller last batch
    would be a shape of its own. So samples that are left over in a bucket fill a batch of a longer bucket, and a batch
    that cannot be filled repeats samples, or is left out with `drop_last`.

    In a DataLoader of torch itself it needs `Trainer(use_distributed_sampler=False)`, in a `BucketDataLoader` nothing.

    Args:
        lengths: Length of each sample, `(samples,)` or `(samples, dimensions)`.
        plan: The buckets.
        batch_size: Number of samples per batch of one rank. Give this or `max_tokens`.
        max_tokens: Number of tokens per batch, padding included: batches of short samples have more of them.
        num_replicas: Number of ranks; None for that of the default process group at the time of iteration, or 1.
        rank: This rank; None for that in the default process group, or 0.
        shuffle: Whether samples and batches are in random order.
        seed: Seed of the order, equal on all ranks.
        drop_last: Whether to leave out samples that do not fill a batch, instead of repeating some.

    Raises:
        ValueError: An argument is out of its range, or a sample does not fit into the largest bucket.
    """

    def __init__(  # noqa: PLR0913 - those of torch's DistributedSampler, and the plan
        self,
        lengths: ArrayLike,
        plan: BucketPlan,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(shuffle=shuffle, seed=seed, num_replicas=num_replicas, rank=rank)
        array = as_lengths(lengths)
        self.plan = plan
        self.batch_sizes = _batch_sizes(plan, batch_size, max_tokens)
        self.drop_last = drop_last
        self._buckets = plan.assign(array)
        self._tokens = np.prod(array, axis=1)
        # Of an epoch and a number of ranks.
        self._schedule: tuple[tuple[int, int], list[_Step]] | None = None

    def __len__(self) -> int:
        """Return the number of batches of each rank in an epoch, which is the same in all epochs."""
        return len(self._steps())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this rank; after `load_state_dict`, those that are left of the epoch."""
        start, self.start = self.start, 0
        self.check_state()
        replicas, rank = self._ranks()
        steps = self._steps()
        for step in range(start, len(steps)):
            self.position = step + 1
            yield steps[step][1][rank::replicas].tolist()

    def shape(self) -> dict[str, int]:
        """Return what a position in an epoch depends on, as part of the state."""
        return {"num_batches": len(self)}

    def batch_info(self, step: int) -> BatchInfo:
        """Return facts about this rank's batch of a step of the epoch."""
        replicas, rank = self._ranks()
        bucket, of_all_ranks = self._steps()[step]
        samples, shape = of_all_ranks[rank::replicas], self.plan.shapes[bucket]
        return BatchInfo(shape, len(samples), int(self._tokens[samples].sum()), len(samples) * math.prod(shape))

    def samples_of_shapes(self) -> dict[tuple[int, ...], list[int]]:
        """Return a batch for each shape that occurs, the largest first: samples of that bucket, repeated if too few.

        The batches are those of a warm-up. They are the same on all ranks.
        """
        batches = {}
        for bucket in sorted({bucket for bucket, _ in self._steps()}, reverse=True):
            (samples,) = np.nonzero(self._buckets == bucket)
            batches[self.plan.shapes[bucket]] = np.resize(samples, self.batch_sizes[bucket]).tolist()
        return batches

    def _steps(self) -> list[_Step]:
        """Return the steps of the epoch."""
        key = (self.epoch, self._ranks()[0])
        if self._schedule is None or self._schedule[0] != key:
            self._schedule = (key, self._make_steps(key[1]))
        return self._schedule[1]

    def _make_steps(self, replicas: int) -> list[_Step]:
        generator = np.random.default_rng((self.seed, self.epoch))
        order = generator.permutation(len(self._buckets)) if self.shuffle else np.arange(len(self._buckets))
        order = order[np.argsort(self._buckets[order], kind="stable")]
        ends = np.cumsum(np.bincount(self._buckets, minlength=len(self.batch_sizes)))
        steps: list[_Step] = []
        remainders = []
        for bucket, samples in enumerate(np.split(order, ends[:-1])):
            size = replicas * self.batch_sizes[bucket]
            full = len(samples) // size * size
            steps += [(bucket, samples[first : first + size]) for first in range(0, full, size)]
            remainders.append(samples[full:])
        if len(self.plan.dimensions) == 1:
            # The longest first, so that shorter ones fill its batch.
            remainders = [np.concatenate(remainders[::-1])]
        for samples in remainders:
            steps += self._remainder_steps(samples, replicas)
        return [steps[index] for index in generator.permutation(len(steps))] if self.shuffle else steps

    def _remainder_steps(self, samples: NDArray[np.int64], replicas: int) -> Iterator[_Step]:
        """Yield steps for samples that do not fill batches of their own buckets.

        Each rank's batch begins with a sample of the step's own bucket, because a collate function pads to the bucket
        of the longest sample that it sees.

        Args:
            samples: The samples, by descending bucket.
            replicas: Number of ranks.
        """
        while len(samples):
            bucket = int(self._buckets[samples[0]])
            size = replicas * self.batch_sizes[bucket]
            own = samples[: min(replicas, int((self._buckets[samples] == bucket).sum()))]
            others = samples[len(own) : len(own) + size - replicas]
            missing = size - len(own) - len(others)
            if missing and self.drop_last:
                samples = samples[len(own) :]
                continue
            samples_of_step = np.concatenate([np.resize(own, replicas), others])
            yield bucket, np.resize(samples_of_step, size)
            samples = samples[len(own) + len(others) :]


def _batch_sizes(plan: BucketPlan, batch_size: int | None, max_tokens: int | None) -> tuple[int, ...]:
    """Return the number of samples per batch of each bucket."""
    if (batch_size is None) == (max_tokens is None):
        raise ValueError(f"give either `batch_size` or `max_tokens`, got {batch_size!r} and {max_tokens!r}")
    if batch_size is not None:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be a positive int, got {batch_size!r}")
        return (batch_size,) * len(plan.shapes)
    sizes = tuple((max_tokens or 0) // math.prod(shape) for shape in plan.shapes)
    if min(sizes) < 1:
        raise ValueError(
            f"`max_tokens` must be at least the largest bucket, {math.prod(plan.shapes[-1])}, got {max_tokens!r}"
        )
    return sizes
