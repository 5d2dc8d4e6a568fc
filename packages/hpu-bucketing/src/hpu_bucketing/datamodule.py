"""Mixin for a LightningDataModule that batches by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpu_bucketing.collate import BucketCollate
from hpu_bucketing.loader import BucketDataLoader
from hpu_bucketing.plan.bucket_plan import BucketPlan
from hpu_bucketing.sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike
    from torch.utils.data import Dataset

    from hpu_bucketing._lightning import LightningDataModule as _DataModule
else:
    _DataModule = object

__all__ = ["BucketDataModuleMixin"]

Stage = Literal["train", "val", "test", "predict"]


class BucketDataModuleMixin(_DataModule):
    """Mixin for a LightningDataModule; list it before LightningDataModule.

    The plan is made from the training lengths and used for all stages, because other stages would compile other shapes.
    Checkpoints keep it, and the position in the training data (Lightning before 2.2 does not save that by itself).

        class TextModule(BucketDataModuleMixin, LightningDataModule):
            def train_dataloader(self):
                return self.bucket_dataloader(self.train_set, self.train_lengths, batch_size=16)

    Attributes:
        bucket_plan: The plan; None before the first loader. Set it to use boundaries of your own.
    """

    bucket_plan: BucketPlan | None = None
    _train_loader: BucketDataLoader[Any] | None = None
    _train_state: Mapping[str, int] | None = None

    def bucket_dataloader(  # noqa: PLR0913 - those of the sampler, and of a DataLoader
        self,
        dataset: Dataset[Any],
        lengths: ArrayLike,
        *,
        stage: Stage = "train",
        batch_size: int | None = None,
        max_tokens: int | None = None,
        align: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> BucketDataLoader[Any]:
        """Return a loader, and make the plan from the lengths if there is none.

        Args:
            dataset: A map-style data set.
            lengths: Length of each sample.
            stage: "train" shuffles, and saves its position in checkpoints.
            batch_size: Number of samples per batch of one rank. Give this or `max_tokens`.
            max_tokens: Number of tokens per batch, padding included.
            align: Alignment of the boundaries, if the plan is made here; see `BucketPlan.from_lengths`.
            seed: Seed of the order.
            drop_last: Whether to leave out samples that do not fill a batch.
            collate_fn: Collate function; None for a `BucketCollate` of the plan.
            **options: Further arguments of torch's DataLoader, such as `num_workers`.
        """
        if self.bucket_plan is None:
            self.bucket_plan = BucketPlan.from_lengths(lengths, batch_size or 1, align=align)
        training = stage == "train"
        sampler = BucketBatchSampler(
            lengths,
            self.bucket_plan,
            batch_size=batch_size,
            max_tokens=max_tokens,
            shuffle=training,
            seed=seed,
            drop_last=drop_last,
        )
        loader: BucketDataLoader[Any] = BucketDataLoader(
            dataset, sampler, collate_fn=collate_fn or BucketCollate(self.bucket_plan), **options
        )
        if training:
            if self._train_state is not None:
                loader.load_state_dict(self._train_state)
            self._train_loader, self._train_state = loader, None
        return loader

    def state_dict(self) -> dict[str, Any]:
        """Return the plan and the position in the training data, for Lightning's checkpoints."""
        return {
            **super().state_dict(),
            "bucket_plan": None if self.bucket_plan is None else self.bucket_plan.to_dict(),
            "train_loader": None if self._train_loader is None else self._train_loader.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the plan and the position in the training data."""
        super().load_state_dict(state_dict)
        plan = state_dict["bucket_plan"]
        self.bucket_plan = None if plan is None else BucketPlan.from_dict(plan)
        self._train_state = state_dict["train_loader"]
