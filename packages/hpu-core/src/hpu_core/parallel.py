"""What training on several Gaudi cards has in common, whatever spreads it over them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import bridge, collectives, discovery, hccl
from hpu_core._lightning import MisconfigurationException
from hpu_core._strategy_mixin import validate_devices
from hpu_core.fabric import FabricHPUStrategy
from hpu_core.strategy import HPUStrategy

T = TypeVar("T")

if TYPE_CHECKING:

    class _Strategy:
        """What is used of Lightning's parallel strategies, the Trainer's and Fabric's."""

        cluster_environment: Any
        global_rank: Any
        local_rank: Any
        num_processes: Any
        world_size: Any
        _parallel_devices: list[torch.device] | None

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def all_gather(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def prepare_device(self) -> None: ...
        def _configure_launcher(self) -> None: ...

else:
    _Strategy = object


class HPUParallelMixin(_Strategy):
    """The part that is the same for the Trainer and for Fabric: the cards, and what their ranks exchange.

    A subclass that watches over its ranks overrides `meeting`.
    """

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """One `torch.device("hpu")` per card of this machine.

        Raises:
            ValueError: On assigning, a device is no HPU, or has an index other than 0.
        """
        return self._parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[torch.device] | None) -> None:
        self._parallel_devices = validate_devices(devices, type(self).__name__)

    def select_device(self) -> None:
        """Choose the card of this rank."""
        hccl.select_device(self.world_size, self.local_rank)

    def meeting(self, what: str, group: Any | None = None) -> AbstractContextManager[Any]:  # noqa: ARG002 - for subclasses.
        """Return the context in which ranks wait for each other.

        Args:
            what: What they wait in, "all-gather".
            group: The process group; all ranks when not given.
        """
        return nullcontext()

    def all_gather(self, tensor: Tensor, group: Any | None = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, of shape `(ranks, *shape)`.

        Args:
            tensor: On the card, of the same shape on all ranks.
            group: The process group; all ranks when not given.
            sync_grads: Whether gradients flow back to the rank that a part came from.

        Raises:
            ValueError: The tensor is not on a card.
        """
        if not dist.is_initialized():
            return tensor
        with self.meeting("all-gather", group):
            if not sync_grads:
                return collectives.all_gather(tensor, group)
            collectives.check_device(tensor)
            return super().all_gather(tensor, group, sync_grads)

    def broadcast(self, obj: T, src: int = 0) -> T:
        """Return what one rank has, an object of any kind.

        Args:
            obj: The object; of no account on other ranks.
            src: The rank that has it.
        """
        if not dist.is_initialized():
            return obj
        with self.meeting("broadcast"):
            return collectives.broadcast(obj, src)

    def barrier(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning passes a name for its logs.
        """Wait until all ranks are here and their cards have finished what they were given."""
        if dist.is_initialized():
            with self.meeting("barrier"):
                collectives.barrier()

    def reduce_over_ranks(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
        """Put the tensors of all ranks together, in place; integers come out exact.

        Args:
            tensor: On the card. Anything but a tensor is returned as it is.
            group: The process group; all ranks when not given.
            reduce_op: "mean", "sum", "min", "max", "product", or the ReduceOp of that name.

        Returns:
            `tensor`.

        Raises:
            ValueError: The tensor is not on a card, or the operation is another one.
        """
        if not isinstance(tensor, Tensor) or not dist.is_initialized():
            return tensor
        with self.meeting("all-reduce", group):
            return collectives.all_reduce(tensor, group, reduce_op)

    def _configure_launcher(self) -> None:
        try:
            discovery.check_devices(self.num_processes)
        except ValueError as error:
            raise MisconfigurationException(str(error)) from error
        # Lightning 2.0.0 starts Fabric's other ranks before it asks for this one's place, and tells them these.
        bridge.clear_default_rendezvous_env()
        super()._configure_launcher()


class HPUParallelStrategyBase(HPUParallelMixin, HPUStrategy):
    """What the Trainer's strategies for several cards have in common: derive from it first, then from Lightning's."""

    reduce = HPUParallelMixin.reduce_over_ranks  # Lightning's name for it here.


class FabricHPUParallelStrategyBase(HPUParallelMixin, FabricHPUStrategy):
    """What Fabric's strategies for several cards have in common: derive from it first, then from Lightning's."""

    all_reduce = HPUParallelMixin.reduce_over_ranks  # Lightning's name for it here.
