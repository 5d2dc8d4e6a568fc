"""Base of batch samplers that share an epoch among ranks, and resume within it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch.distributed
from torch.utils.data import DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RankBatchSampler"]


class RankBatchSampler(DistributedSampler[list[int]]):
    """Batch sampler with an epoch and a position in it, whose ranks are those of the time of iteration.

    It derives from torch's DistributedSampler, which Lightning never replaces by one of its own.

    Args:
        shuffle: Whether each epoch has a random order.
        seed: Seed of the orders, equal on all ranks.
        num_replicas: Number of ranks; None for that of the default process group at the time of iteration, or 1.
        rank: This rank; None for that in the default process group, or 0.

    Raises:
        ValueError: `rank` is not one of `num_replicas`.

    Attributes:
        epoch: The current epoch.
        position: Batches of it that were delivered.
        start: Batch that the next iteration begins with.
    """

    def __init__(self, *, shuffle: bool, seed: int, num_replicas: int | None, rank: int | None) -> None:
        # The base class requires a data set and reads the process group at once, which a launcher has not created yet.
        if (num_replicas is None) != (rank is None) or (rank is not None and not 0 <= rank < (num_replicas or 0)):
            raise ValueError(f"`rank` must be from 0 to `num_replicas` - 1, got {rank!r} of {num_replicas!r}")
        self.shuffle, self.seed = shuffle, seed
        self.epoch = self.position = self.start = 0
        self._place = None if num_replicas is None or rank is None else (num_replicas, rank)
        self._expected: dict[str, int] = {}

    @property
    def num_replicas(self) -> int:  # type: ignore[override] # the base class has an attribute
        """Number of ranks."""
        return self._ranks()[0]

    @property
    def rank(self) -> int:  # type: ignore[override] # as above
        """This rank."""
        return self._ranks()[1]

    @abstractmethod
    def shape(self) -> dict[str, int]:
        """Return what a position in an epoch depends on, as part of the state."""

    def check_state(self) -> None:
        """Check a loaded state, at the beginning of an iteration: the process group may not exist before.

        Raises:
            ValueError: It is of another data set, batch size or number of ranks.
        """
        expected, self._expected = self._expected, {}
        if expected and expected != (found := self.shape()):
            raise ValueError(
                f"the state must be of the same data, batch size and ranks, {found}, got {expected}: resume with "
                "those, or at the beginning of an epoch"
            )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which decides the order. Another epoch begins with its first batch."""
        if epoch != self.epoch:
            self.position = self.start = 0
            self._expected = {}
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """Return the state, which is the same on all ranks."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, **self.shape()}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue after the batches that had been delivered when the state was saved."""
        shape = dict(state_dict)
        self.epoch, self.seed = shape.pop("epoch"), shape.pop("seed")
        self.position = self.start = shape.pop("position")
        self._expected = shape if self.start else {}

    def _ranks(self) -> tuple[int, int]:
        if self._place is not None:
            return self._place
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size(), torch.distributed.get_rank()
        return 1, 0
