"""What the Trainer's strategy and Fabric's do alike: their cards, and what their ranks exchange."""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import collectives
from hpu_core.strategy import checked_devices
from hpu_ddp._launchers import check_cards
from hpu_ddp._ranks import Ranks

T = TypeVar("T")


class Exchange:
    """Stands before one of Lightning's DDP strategies among the bases of ours.

    Attributes:
        multi_processing_launcher: What starts processes with multiprocessing.
    """

    multi_processing_launcher: ClassVar[type[Any]]

    _ranks: Ranks
    _parallel_devices: list[torch.device] | None
    _start_method: Any
    _launcher: Any
    num_processes: Any

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """One `torch.device("hpu")` per card of this machine.

        Raises:
            ValueError: On assigning, a device is no HPU, or has an index other than 0.
        """
        return self._parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[torch.device] | None) -> None:
        self._parallel_devices = checked_devices(devices, type(self).__name__)

    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, of shape (ranks, *shape).

        Args:
            tensor: On the card, of the same shape on all ranks.
            group: The process group; all ranks when not given.
            sync_grads: Whether gradients flow back to the rank that a part came from.

        Raises:
            ValueError: The tensor is not on a card.
        """
        if not dist.is_initialized():
            return tensor
        with self._ranks.meeting("all-gather", group):
            if not sync_grads:
                return collectives.all_gather(tensor, group)
            collectives.check_device(tensor)
            gathered: Tensor = super().all_gather(tensor, group, sync_grads)  # type: ignore[misc] # Lightning's.
            return gathered

    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return what one rank has, an object of any kind.

        Args:
            obj: The object; of no account on other ranks.
            src: The rank that has it.
        """
        if not dist.is_initialized():
            return obj
        with self._ranks.meeting("broadcast"):
            return collectives.broadcast(obj, src)

    def barrier(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning passes a name for its logs.
        """Wait until all ranks are here and their cards have finished what they were given."""
        if dist.is_initialized():
            with self._ranks.meeting("barrier"):
                collectives.barrier()

    def _put_together(self, tensor: Any, group: Any | None, reduce_op: Any) -> Any:
        """Put the tensors of all ranks together, in place; anything but a tensor is returned as it is."""
        if not isinstance(tensor, Tensor) or not dist.is_initialized():
            return tensor
        with self._ranks.meeting("all-reduce", group):
            return collectives.all_reduce(tensor, group, reduce_op)

    def _configure_launcher(self) -> None:
        check_cards(self.num_processes)
        super()._configure_launcher()  # type: ignore[misc] # Lightning's.
        if self._start_method != "popen":
            self._launcher = self.multi_processing_launcher(self, start_method=self._start_method)
