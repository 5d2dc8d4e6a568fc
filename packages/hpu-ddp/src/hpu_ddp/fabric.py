"""Training on many Gaudi cards with Fabric: one process per card, gradients averaged over all of them."""

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hpu_core import HPUAccelerator, HPUCheckpointIO, bridge, frameworks, hccl
from hpu_ddp import _options
from hpu_ddp._exchange import Exchange
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher, check_is_rank
from hpu_ddp._lightning import FabricDDPStrategy, MisconfigurationException
from hpu_ddp._ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning.fabric.accelerators.accelerator import Accelerator
    from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment, Precision
    from lightning.fabric.strategies.registry import _StrategyRegistry
    from lightning.fabric.utilities.types import Optimizable
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel


class FabricHPUParallelStrategy(Exchange, FabricDDPStrategy):
    """Fabric's twin of HPUParallelStrategy; its name in Lightning is "hpu_parallel".

    In lazy mode, the graph is closed after backward and after the optimizer's step, as with the Trainer.

    Args:
        accelerator: The accelerator, when it is not passed to Fabric.
        parallel_devices: One `torch.device("hpu")` per card of this machine; Fabric's `devices` when not given.
        cluster_environment: How the processes are started; Lightning finds out when it is not given.
        checkpoint_io: How checkpoints are written and read; `hpu_core.HPUCheckpointIO` when not given.
        precision: Fabric's precision plugin; 32 bit when not given.
        process_group_backend: "hccl", or another backend that works on HPUs.
        timeout: For how long ranks wait for each other, see HPUParallelStrategy.
        start_method: "popen" starts the script once more per card, the others start processes with multiprocessing:
            "spawn" is the one for notebooks.
        bucket_cap_mb: Size of a bucket of gradients, in MiB; 230 is what Intel's examples use.
        gradient_as_bucket_view: Whether gradients lie in the buckets, which spares a copy of all of them.
        find_unused_parameters: Whether to look, in each step, for parameters that the loss does not depend on.
        **kwargs: For torch's DistributedDataParallel.

    Raises:
        TypeError: `timeout` is no timedelta.
        ValueError: An argument cannot be honoured; the text names it.
    """

    strategy_name = "hpu_parallel"
    multi_processing_launcher = FabricHPUMultiProcessingLauncher

    def __init__(  # noqa: PLR0913, PLR0917 - Lightning's arguments and three of torch's, whose defaults differ here.
        self,
        accelerator: "Accelerator | None" = None,
        parallel_devices: "list[torch.device] | None" = None,
        cluster_environment: "ClusterEnvironment | None" = None,
        checkpoint_io: "CheckpointIO | None" = None,
        precision: "Precision | None" = None,
        process_group_backend: str | None = _options.BACKEND,
        timeout: timedelta | None = _options.TIMEOUT,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        *,
        bucket_cap_mb: float = _options.BUCKET_CAP_MB,
        gradient_as_bucket_view: bool = _options.GRADIENT_AS_BUCKET_VIEW,
        find_unused_parameters: bool = _options.FIND_UNUSED_PARAMETERS,
        **kwargs: Any,
    ) -> None:
        self._ranks = Ranks(process_group_backend, timeout)
        # Decided once, in `setup_environment`, so that a step in eager mode pays for nothing.
        self._mark_step: Callable[[], None] | None = None
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision=precision,
            process_group_backend=self._ranks.backend,
            timeout=self._ranks.timeout,
            start_method=start_method,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            find_unused_parameters=find_unused_parameters,
            **kwargs,
        )

    @property
    def checkpoint_io(self) -> "CheckpointIO":
        """How checkpoints are written and read; `HPUCheckpointIO` unless the user chose otherwise."""
        if self._checkpoint_io is None:
            self._checkpoint_io = HPUCheckpointIO()
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: "CheckpointIO") -> None:
        self._checkpoint_io = io

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Create tensors directly on the card inside the context, as `Fabric.init_tensor` does.

        Raises:
            RuntimeError: This process only starts others, and must not take a card from them.
        """
        self._prepare_card()
        return super().tensor_init_context()

    def module_init_context(self, empty_init: bool | None = None) -> AbstractContextManager[Any]:
        """Create a module directly on the card inside the context, as `Fabric.init_module` does.

        Args:
            empty_init: Whether to leave the weights uninitialised.

        Raises:
            RuntimeError: This process only starts others, and must not take a card from them.
        """
        self._prepare_card()
        return super().module_init_context(empty_init)

    def setup_environment(self) -> None:
        """Meet the other ranks, open this rank's card and make the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            ModuleNotFoundError: The Gaudi bridge is not installed.
            RankFailedError: A rank has not come, or has failed; the text names it.
            RuntimeError: No card could be opened.
            ValueError: The environment is incomplete or contradicts itself.
        """
        if not isinstance(self.accelerator, HPUAccelerator):
            raise MisconfigurationException(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator=hpu_core.HPUAccelerator()` to Fabric"
            )
        self._set_world_ranks()
        self._ranks.meet(self.cluster_environment)
        self._prepare_card()
        self._mark_step = bridge.mark_step_if_lazy()
        super().setup_environment()

    def setup_module(self, module: "Module") -> "DistributedDataParallel":
        """Have a module's gradients averaged over all ranks.

        Args:
            module: The module, on the card.
        """
        with self._ranks.meeting("set-up"):
            return super().setup_module(module)

    def backward(self, tensor: Tensor, module: "Module | None", *args: Any, **kwargs: Any) -> None:
        """Compute gradients, average them over all ranks, and close the graph of forward and backward (lazy mode).

        Args:
            tensor: The loss, scalar.
            module: The module, for the precision plugin.
            *args: For the precision plugin.
            **kwargs: For the precision plugin.
        """
        with self._ranks.meeting("backward"):
            super().backward(tensor, module, *args, **kwargs)
        self._close_graph()

    def optimizer_step(self, optimizer: "Optimizable", **kwargs: Any) -> Any:
        """Run the optimizer's step, then close its graph (lazy mode).

        Args:
            optimizer: The optimizer.
            **kwargs: For its `step`.
        """
        result = super().optimizer_step(optimizer, **kwargs)
        self._close_graph()
        return result

    def all_reduce(self, tensor: Any, group: Any | None = None, reduce_op: Any = "mean") -> Any:
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
        return self._put_together(tensor, group, reduce_op)

    @classmethod
    def register_strategies(cls, strategy_registry: "_StrategyRegistry") -> None:
        """Register the strategy by its `strategy_name`.

        Args:
            strategy_registry: Fabric's `STRATEGY_REGISTRY`.
        """
        strategy_registry.register(cls.strategy_name, cls, description=cls.__name__, override=True)

    def __repr__(self) -> str:
        return frameworks.describe(self)

    def _set_world_ranks(self) -> None:
        self._ranks.find_place(self.cluster_environment, self.num_processes, self.num_nodes)
        super()._set_world_ranks()

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self._ranks.make_process_group(self.cluster_environment)

    def _determine_ddp_device_ids(self) -> None:
        # A process has one card, and it has no index.
        return None

    def _prepare_card(self) -> None:
        """Choose this rank's card, which is opened next."""
        check_is_rank(self._start_method, self.cluster_environment)
        bridge.load()
        hccl.choose_card(self.world_size, self.local_rank)

    def _close_graph(self) -> None:
        if self._mark_step is not None:
            self._mark_step()


class FabricHPUDDPStrategy(FabricHPUParallelStrategy):
    """The same under the name "hpu_ddp", which `lightning-habana` had for it.

    Args:
        *args: As FabricHPUParallelStrategy's.
        **kwargs: As FabricHPUParallelStrategy's.
    """

    strategy_name = "hpu_ddp"
