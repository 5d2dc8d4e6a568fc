"""Setup of modules that the program shards with `fully_shard` and `parallelize_module`."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from packaging.version import Version
from torch.nn import Module

from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.strategy import constructor_arguments
from hpu_fsdp import _setup, _torch
from hpu_fsdp._lightning import check_version, rank_zero_warn

if TYPE_CHECKING:
    from typing_extensions import Self

# The first torch whose custom operators for FSDP2 have HPU kernels, and its SynapseAI release.
_TORCH: Final = Version("2.7.dev0")
_RELEASE: Final = "1.22"


class ModelParallelSetupMixin(_setup.ShardedSetupMixin):
    """Mixin for strategies with a device mesh; list it as ShardedSetupMixin."""

    _data_parallel_size: Any
    _tensor_parallel_size: Any

    def __init__(  # noqa: PLR0913 - the arguments that are checked here.
        self,
        *,
        data_parallel_size: object,
        tensor_parallel_size: object,
        context_parallel_size: int,
        process_group_backend: str | None,
        timeout: timedelta | None,
        failure_detection: bool,
        **arguments: Any,
    ) -> None:
        check_version(type(self))
        if Version(torch.__version__) < _TORCH:
            raise ImportError(
                f"{type(self).__name__} needs torch 2.7 or newer, which comes with SynapseAI {_RELEASE}, got "
                f"{torch.__version__}: upgrade, or pass `strategy='hpu_fsdp'`"
            )
        sizes = {"data_parallel_size": data_parallel_size, "tensor_parallel_size": tensor_parallel_size}
        for name, size in sizes.items():
            _setup.validate_size(name, size, allows_auto=True)
        self.context_parallel_size = _setup.validate_size("context_parallel_size", context_parallel_size)
        self.process_groups = ProcessGroupManager(process_group_backend, timeout, failure_detection)
        super().__init__(
            **sizes,
            process_group_backend=self.process_groups.backend,
            timeout=self.process_groups.timeout,
            **arguments,
        )

    @classmethod
    def from_lightning(cls, strategy: Any) -> "Self":
        """Return a strategy with the arguments of Lightning's ModelParallelStrategy, which it replaces on HPU."""
        return cls(**constructor_arguments(cls, strategy))

    def setup_environment(self) -> None:
        """Create the process group, open the device and build the mesh.

        Raises:
            RuntimeError: See ShardedSetupMixin.
        """
        _torch.patch_dtensor_random()
        if self.context_parallel_size > 1:
            # Lightning would give the ranks of a machine one sample, and a share of each layer.
            if self._tensor_parallel_size == "auto":
                self._tensor_parallel_size = 1
            if self._data_parallel_size == "auto":
                self._data_parallel_size = self.world_size // self._tensor_parallel_size
        super().setup_environment()

    def _data_layout(self) -> tuple[int, int]:
        return self._data_parallel_size, self._tensor_parallel_size

    def teardown(self) -> None:
        """Move everything off the device, and restore what was replaced in torch."""
        try:
            super().teardown()
        finally:
            _torch.restore()

    def _finish_parallelization(self, module: Module) -> None:
        """Restrict reductions to sums, and check the sharded parameters.

        Raises:
            ValueError: No parameter is sharded, a mesh is not one of HPUs, or a reduction needs another operation.
        """
        meshes = {parameter.device_mesh.device_type for parameter in _torch.sharded_parameters(module)}
        if not meshes and self.world_size > 1:
            raise ValueError(
                f"the module must have sharded parameters, got {type(module).__name__} without any: call `fully_shard` "
                "or `parallelize_module` with the strategy's device mesh, and check that the plan names its modules"
            )
        if meshes - {"hpu"}:
            raise ValueError(
                f"device meshes must be of 'hpu', got {', '.join(map(repr, sorted(meshes)))}: pass the strategy's "
                "`device_mesh`"
            )
        _torch.force_sum_reduction(module)
        units = _torch.count_resharded_units(module)
        if units and self.world_size > 1:
            rank_zero_warn(
                f"`fully_shard(reshard_after_forward=True)` frees the gathered parameters of {units} modules in each "
                "forward pass, and each is a host-device synchronization in eager mode: pass "
                "`reshard_after_forward=False` if the parameters fit in memory"
            )
        module.register_load_state_dict_post_hook(_move_loaded_parameters)


def check_clipping(module: Module) -> None:
    """Raise a ValueError if gradients in host memory are to be clipped without a backend that sums their norms."""
    if _torch.is_offloaded(module) and "cpu" not in torch.distributed.get_backend_config():
        raise ValueError(
            "`gradient_clip_val` needs a process group for CPU tensors with `CPUOffloadPolicy`, got one for hpu only: "
            "pass `process_group_backend='cpu:gloo,hpu:hccl'` to the strategy"
        )


def move_unsharded(module: Module) -> None:
    """Move a sharded module to the device, except the parameters that `CPUOffloadPolicy` keeps in host memory."""
    offloaded = {id(parameter) for parameter in _torch.offloaded_parameters(module)}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to("cpu" if id(tensor) in offloaded else _setup.DEVICE)

    module._apply(move)  # noqa: SLF001 - `Module.to` moves all tensors alike.


def _move_loaded_parameters(module: Module, _: Any) -> None:
    """Move frozen parameters that `load_state_dict(assign=True)` has replaced by CPU tensors to the device.

    Raises:
        ValueError: A parameter with gradients is a CPU tensor. Moving it would detach it from the optimizer.
    """
    if _torch.is_offloaded(module):
        return
    loaded = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.device.type == "cpu" and parameter in set(_torch.sharded_parameters(module))
    }
    trained = next((name for name, parameter in loaded.items() if parameter.requires_grad), None)
    if trained is not None:
        raise ValueError(
            f"parameter {trained!r} of a sharded module must be on 'hpu', got 'cpu' by `load_state_dict(assign=True)`: "
            "move the state dict to the device, or pass `assign=False`"
        )
    if loaded:
        module._apply(lambda tensor: tensor.to(_setup.DEVICE) if tensor.device.type == "cpu" else tensor)  # noqa: SLF001


@contextmanager
def plan_errors() -> Iterator[None]:
    """Return a context in which a plan that names no module raises a ValueError; torch 2.9 and newer warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Parallelize plan key")
        try:
            yield
        except UserWarning as warning:
            raise ValueError(f"a plan of `parallelize_module` must name a module: {warning}") from warning
