"""DataLoader that resumes within an epoch, and whose sampler Lightning keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import DataLoader

from hpu_bucketing.sampler import BatchInfo, BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.utils.data import Dataset, Sampler

__all__ = ["BucketDataLoader"]

T_co = TypeVar("T_co", covariant=True)


class BucketDataLoader(DataLoader[T_co]):
    """DataLoader of a `BucketBatchSampler`.

    Its attribute `sampler` is the batch sampler, a DistributedSampler, so Lightning 2.0 to 2.6 neither replaces it nor
    needs `use_distributed_sampler=False`, and sets its epoch. Its state counts the batches that were delivered, not
    those that workers have prefetched. Lightning 2.2 and newer save it in checkpoints.

    Args:
        dataset: A map-style data set.
        batch_sampler: The sampler.
        collate_fn: A `BucketCollate`, or a function that pads by itself; None for torch's.
        **options: Further arguments of torch's DataLoader, such as `num_workers`.

    Attributes:
        last_batch: Facts about the batch delivered last; None before the first.
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_sampler: Sampler[list[int]],
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_sampler=batch_sampler, collate_fn=collate_fn, **options)
        self.last_batch: BatchInfo | None = None
        if isinstance(batch_sampler, BucketBatchSampler):
            # torch has put a SequentialSampler here, which it does not use, and refuses assignments.
            vars(self)["sampler"] = batch_sampler

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # an iterator that counts
        """Yield the batches, and note how many were delivered."""
        sampler = self.batch_sampler
        if not isinstance(sampler, BucketBatchSampler):
            # In `Trainer.predict`, Lightning's wrapper that notes the indices.
            yield from super().__iter__()
            return
        step = sampler.start
        for batch in super().__iter__():
            self.last_batch = sampler.batch_info(step)
            step += 1
            sampler.position = step
            yield batch

    def warmup_batches(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield each shape that occurs, the largest first, with a collated batch of it.

        Raises:
            TypeError: The sampler is not a `BucketBatchSampler`.
        """
        sampler = self.batch_sampler
        if not isinstance(sampler, BucketBatchSampler):
            raise TypeError(f"`batch_sampler` must be a BucketBatchSampler, got {type(sampler).__name__}")
        for shape, samples in sampler.samples_of_shapes().items():
            yield shape, self.collate_fn([self.dataset[index] for index in samples])

    def state_dict(self) -> dict[str, int]:
        """Return the state: the epoch and the number of batches delivered in it."""
        sampler = self.batch_sampler
        return sampler.state_dict() if isinstance(sampler, BucketBatchSampler) else {}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue after the batches that had been delivered when the state was saved."""
        sampler = self.batch_sampler
        if isinstance(sampler, BucketBatchSampler) and state_dict:
            sampler.load_state_dict(state_dict)
