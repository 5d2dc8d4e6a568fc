"""What the strategies for the Trainer and for Fabric have in common: cards, ranks and collectives."""

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpu_core import collectives, discovery, frameworks, hccl, initialize_hccl
from hpu_core.strategy import checked_devices
from hpu_deepspeed import _config, _folder, _vendor
from hpu_deepspeed._lightning import MisconfigurationException, reset_seed
from hpu_deepspeed._plugin import PLUGIN

T = TypeVar("T")

TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.
_MODULES_OF_A_SERVER: Final = 8

if TYPE_CHECKING:

    class _Strategy:
        """What is used of Lightning's strategies, the Trainer's and Fabric's."""

        cluster_environment: Any
        global_rank: Any
        local_rank: Any
        num_processes: Any
        world_size: Any
        _parallel_devices: list[torch.device] | None

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def all_gather(self, *args: Any, **kwargs: Any) -> Tensor: ...
        def _configure_launcher(self) -> None: ...

else:
    _Strategy = object


class OnCards(_Strategy):
    """Goes in front of Lightning's DeepSpeedStrategy, the Trainer's or Fabric's.

    Args:
        *args: Lightning's.
        process_group_backend: "hccl".
        timeout: For how long ranks wait for each other to come; 30 minutes when not given. HCCL itself knows none.
        **kwargs: Lightning's.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: `timeout` is no timedelta, or a part of the configuration is of the wrong type.
        ValueError: The configuration has a value or an option that DeepSpeed does not take.
    """

    config: Any
    _timeout: timedelta | None
    # Whether `root_device` has an index at the moment, see `_with_index`.
    _indexed = False

    def __init__(
        self, *args: Any, process_group_backend: str | None = None, timeout: timedelta | None = TIMEOUT, **kwargs: Any
    ) -> None:
        _vendor.load()
        _vendor.check_release()
        if process_group_backend not in {None, "hccl"}:
            raise ValueError(f"`process_group_backend` must be 'hccl', got {process_group_backend!r}: leave it out")
        if timeout is not None and not isinstance(timeout, timedelta):
            raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
        super().__init__(*args, process_group_backend="hccl", **kwargs)
        self._timeout = timeout or TIMEOUT
        # Lightning writes into it, and the user's dict may be another strategy's as well.
        self.config = copy.deepcopy(self.config)
        _config.check(self.config)
        _config.allow_any_optimizer(self.config)

    @property
    def parallel_devices(self) -> "list[torch.device] | None":
        """One `torch.device("hpu")` per card of this machine.

        Raises:
            ValueError: On assigning, a device is no HPU, or has an index other than 0.
        """
        return self._parallel_devices

    @parallel_devices.setter
    def parallel_devices(self, devices: Sequence[torch.device] | None) -> None:
        self._parallel_devices = checked_devices(devices, type(self).__name__)

    @property
    def root_device(self) -> torch.device:
        """`torch.device("hpu")`: a process has one card, and it has no index."""
        return torch.device("hpu", _index(self.local_rank)) if self._indexed else torch.device("hpu")

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
        return collectives.broadcast(obj, src) if dist.is_initialized() else obj

    def barrier(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - Lightning passes a name for its logs.
        """Wait until all ranks are here and their cards have finished what they were given."""
        if dist.is_initialized():
            collectives.barrier()

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy by all its names.

        Args:
            strategy_registry: Lightning's registry of strategies.
        """
        for name, classes in PLUGIN.strategies.items():
            strategy_registry.register(name, cls, description=cls.__name__, override=True, **classes.options)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _configure_launcher(self) -> None:
        try:
            discovery.check_devices(self.num_processes)
        except ValueError as error:
            raise MisconfigurationException(str(error)) from error
        super()._configure_launcher()

    def _choose_card(self) -> None:
        hccl.choose_card(self.world_size, self.local_rank)

    def _make_process_group(self) -> None:
        """Take this process's rank and have DeepSpeed make the process group."""
        reset_seed()
        _config.check_offload(self.config)
        initialize_hccl(self.world_size, self.global_rank, self.local_rank)
        self._init_deepspeed_distributed()

    def _init_deepspeed_distributed(self) -> None:
        # Lightning passes the timeout from 2.5 on.
        if self.cluster_environment is None:
            raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
        os.environ.update(
            {
                "MASTER_ADDR": self.cluster_environment.main_address,
                "MASTER_PORT": str(self.cluster_environment.main_port),
                "RANK": str(self.global_rank),
                "WORLD_SIZE": str(self.world_size),
                "LOCAL_RANK": str(self.local_rank),
            }
        )
        port = self.cluster_environment.main_port
        _vendor.load().init_distributed("hccl", distributed_port=port, timeout=self._timeout)

    @contextmanager
    def _with_index(self) -> Iterator[None]:
        """Name the card by an index, which DeepSpeed's engine is told by Lightning and computes with."""
        self._indexed = True
        try:
            yield
        finally:
            self._indexed = False

    @contextmanager
    def _replacing(self, path: Any) -> Iterator[Path]:
        """Have a checkpoint written that takes its place when it is whole."""
        target = Path(os.fspath(self.broadcast(path)))
        with _folder.replacing(target, self.global_rank, self.local_rank, self.barrier) as partial:
            yield partial


def _index(local_rank: int) -> int:
    """Return by which index the bridge's `set_device`, which DeepSpeed calls, knows the card of this process.

    It counts the modules of HABANA_VISIBLE_MODULES, or those of a server, and insists on the chosen one.
    """
    visible = os.environ.get("HABANA_VISIBLE_MODULES")
    modules = visible.split(",") if visible else [str(module) for module in range(_MODULES_OF_A_SERVER)]
    chosen = os.environ.get("HLS_MODULE_ID")
    return modules.index(chosen) if chosen in modules else local_rank
