"""Training with DeepSpeed on Gaudi cards, with Fabric."""

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

from hpu_core import HPUAccelerator, bridge, collectives
from hpu_deepspeed import _config, _vendor
from hpu_deepspeed._cards import OnCards
from hpu_deepspeed._folder import present
from hpu_deepspeed._lightning import FabricDeepSpeedPrecision, FabricDeepSpeedStrategy, MisconfigurationException
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

if TYPE_CHECKING:
    from collections.abc import Callable


class FabricHPUDeepSpeedStrategy(OnCards, FabricDeepSpeedStrategy):
    """Fabric's twin of HPUDeepSpeedStrategy, with the same names.

    As with Lightning's own, a configuration with `gradient_accumulation_steps` is DeepSpeed's to count.

    Args:
        *args: As those of Fabric's DeepSpeedStrategy.
        **kwargs: The same. `process_group_backend` is "hccl"; `timeout` works on every Lightning.
    """

    # Decided once, in `setup_environment`, so that a step in eager mode pays for nothing.
    _mark_step: "Callable[[], None] | None" = None

    @staticmethod
    def precision_plugin_for(precision: Any) -> FabricDeepSpeedPrecision:
        """Return the precision plugin for Fabric's `precision`.

        Raises:
            ValueError: DeepSpeed does not train in it.
        """
        return FabricHPUDeepSpeedPrecision(precision)

    def setup_environment(self) -> None:
        """Open this rank's card and make the process group.

        Raises:
            MisconfigurationException: The accelerator is not an HPUAccelerator.
            NotImplementedError: This DeepSpeed cannot offload to NVMe on Gaudi.
            OSError: The folder to offload to is not there, or cannot be written.
            RuntimeError: No card could be opened, or a compiler is missing.
        """
        if not isinstance(self.accelerator, HPUAccelerator):
            raise MisconfigurationException(
                f"{type(self).__name__} needs an HPUAccelerator, got {type(self.accelerator).__name__}: pass "
                "`accelerator=hpu_core.HPUAccelerator()` to Fabric"
            )
        bridge.load()
        self._set_world_ranks()
        self._choose_card()
        self._mark_step = bridge.mark_step_if_lazy()
        # Past the check for CUDA.
        super(FabricDeepSpeedStrategy, self).setup_environment()

    def backward(self, tensor: Tensor, module: Any, *args: Any, **kwargs: Any) -> None:
        """Compute gradients with DeepSpeed's engine, then close the graph of forward and backward (lazy mode).

        Args:
            tensor: The loss, scalar.
            module: The engine.
            *args: For the engine.
            **kwargs: For the engine.
        """
        super().backward(tensor, module, *args, **kwargs)
        self._close_graph()

    def optimizer_step(self, optimizer: Any, **kwargs: Any) -> Any:
        """Run the engine's step, then close its graph (lazy mode).

        Args:
            optimizer: The engine.
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
        if not isinstance(tensor, Tensor) or not dist.is_initialized():
            return tensor
        return collectives.all_reduce(tensor, group, reduce_op)

    def save_checkpoint(self, path: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Have each rank save its part of a checkpoint, a folder, which takes its place when all have.

        Args:
            path: The folder.
            state: The module that Fabric has set up, and whatever else is to be saved.
            *args: Lightning's.
            **kwargs: Lightning's.
        """
        with self._replacing(path) as partial:
            super().save_checkpoint(partial, state, *args, **kwargs)

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Have each rank load its part of a checkpoint.

        Args:
            path: The folder.
            *args: Lightning's.
            **kwargs: Lightning's.

        Returns:
            What the checkpoint has besides.
        """
        _vendor.keep_old_names()
        return super().load_checkpoint(present(path), *args, **kwargs)

    def _set_world_ranks(self) -> None:
        bridge.forget_rendezvous()
        super()._set_world_ranks()

    def _setup_distributed(self) -> None:
        self._set_world_ranks()
        self._make_process_group()
        # The rest of what Lightning does here.
        if not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    def _format_config(self) -> None:
        super()._format_config()
        _config.check_batch_sizes(self.config, self.world_size)

    def _initialize_engine(self, *args: Any, **kwargs: Any) -> Any:
        with self._with_index():
            return super()._initialize_engine(*args, **kwargs)

    def _close_graph(self) -> None:
        if self._mark_step is not None:
            self._mark_step()
