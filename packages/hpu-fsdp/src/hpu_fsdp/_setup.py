"""Setup that FSDP needs on HPU: eager mode, an open device before a device mesh is built, and units on the device."""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, enable_wrap
from torch.nn import Module

from hpu_core import bridge
from hpu_fsdp import _torch, _transformers, context_parallel
from hpu_fsdp._lightning import check_versions

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# As Lightning's, by which LightningCLI parses a list of classes.
Policy: TypeAlias = set[type[Module]] | Callable[[Module, bool, int], bool] | ModuleWrapPolicy

# The index that every tensor on the device has.
DEVICE: Final = torch.device("hpu", 0)


def take_arguments(strategy: Any, local_names: Mapping[str, Any]) -> dict[str, Any]:
    """Take what a strategy has beyond Lightning's out of the arguments of its constructor, and return Lightning's.

    Raises:
        ImportError: torch or Lightning is too old.
        TypeError: An argument is of the wrong type.
        ValueError: An argument is invalid; the message names it.
    """
    check_versions(type(strategy))
    arguments: dict[str, Any] = strategy.take_arguments(local_names)
    strategy.context_parallel_size = size = arguments.pop("context_parallel_size", 1)
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"`context_parallel_size` must be a positive int, got {size!r}")
    # The argument of FSDP, and that of model parallelism.
    kind = arguments.get("state_dict_type", "sharded")
    strategy.saves_sharded = kind == "sharded" and arguments.get("save_distributed_checkpoint", True)
    if strategy.saves is not None and not strategy.saves_sharded:
        raise ValueError(
            "`async_save` must be False for full checkpoints, got True: save sharded ones, or use Lightning's "
            "AsyncCheckpointIO"
        )
    return arguments


def fsdp_arguments(strategy: Any) -> dict[str, Any]:
    """Return the arguments, which the caller may edit, that an FSDPStrategy passes to FullyShardedDataParallel."""
    arguments: dict[str, Any] = vars(strategy)[strategy.wrapper_arguments]
    return arguments


def check_mode(strategy: Any) -> None:
    """Raise a RuntimeError if the bridge is in lazy mode, which cannot free the storage of a gathered parameter."""
    if bridge.is_lazy():
        raise RuntimeError(
            f"{type(strategy).__name__} needs eager mode, got lazy mode, which cannot free the storage of a gathered "
            "parameter: set PT_HPU_LAZY_MODE=0 before the program starts"
        )


@contextmanager
def mesh_setup(strategy: Any) -> Iterator[None]:
    """Return the context of the set-up of Lightning's ModelParallelStrategy, which builds the mesh.

    Raises:
        RuntimeError: The bridge is in lazy mode.
    """
    check_mode(strategy)
    _torch.patch_dtensor_random()
    strategy.at_teardown.callback(_torch.patches.close)
    yield


def finish_sharding(strategy: Any, module: Module) -> None:
    """Prepare a module that the program has sharded with `fully_shard` and `parallelize_module`.

    Raises:
        ValueError: No parameter is sharded.
    """
    is_sharded = _torch.prepare_sharded(module)
    if strategy.world_size > 1 and not is_sharded:
        raise ValueError(
            f"the module must have sharded parameters, got {type(module).__name__} without any: call `fully_shard` "
            "or `parallelize_module` with the strategy's device mesh, and check that the plan names its modules"
        )


def share_attention(strategy: Any, module: Module) -> None:
    """Make the attention of a module exchange sequences for heads, until the strategy's teardown.

    Raises:
        ValueError: It has no attention that can.
    """
    context_parallel.activate(strategy.context_parallel)
    if strategy.context_parallel.size == 1:
        return
    strategy.at_teardown.callback(context_parallel.activate, context_parallel.ContextParallel())
    shared = _transformers.share_attention(module)
    is_own = any(isinstance(part, context_parallel.UlyssesAttention) for part in module.modules())
    if shared is not None:
        strategy.at_teardown.enter_context(shared)
    elif not is_own:
        raise ValueError(
            "`context_parallel_size` needs a model of transformers, or a module with `hpu_fsdp.UlyssesAttention`, "
            f"got {type(module).__name__} with neither: its attention would see a part of each sequence"
        )


@contextmanager
def sharding_setup(strategy: Any) -> Iterator[None]:
    """Return the context of Lightning's set-up, behind which the sharding is chosen.

    Raises:
        RuntimeError: The bridge is in lazy mode.
        ValueError: `context_parallel_size` does not divide the ranks.
    """
    check_mode(strategy)
    # Lightning would build a mesh of GPUs, and torch one of a device of its own choice in a process without one.
    mesh = fsdp_arguments(strategy).pop("device_mesh", None)
    yield
    if strategy.world_size % strategy.context_parallel_size:
        raise ValueError(
            f"`context_parallel_size` must be a divisor of the number of ranks, {strategy.world_size}, got "
            f"{strategy.context_parallel_size}"
        )
    strategy.context_parallel = context_parallel.ContextParallel.create(strategy.context_parallel_size)
    _choose_sharding(strategy, mesh)


def _choose_sharding(strategy: Any, mesh: "tuple[int, int] | DeviceMesh | None" = None) -> None:
    """Build the mesh of hybrid sharding, and choose `NO_SHARD` where a device has all parameters."""
    arguments = fsdp_arguments(strategy)
    if strategy.world_size == 1:
        # Gathering, freeing and scattering on one device copies everything for nothing.
        strategy.sharding_strategy = ShardingStrategy.NO_SHARD
        return
    if mesh is None and arguments.get("process_group") is None and "HYBRID" in strategy.sharding_strategy.name:
        # torch would take all devices of the machine for those of this job.
        mesh = (strategy.num_nodes, strategy.num_processes)
    if mesh is None:
        return
    if isinstance(mesh, tuple):
        # From torch 2.2 on, as Lightning's argument.
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("hpu", mesh)
    if "HYBRID" in strategy.sharding_strategy.name and mesh.size(mesh.ndim - 1) == 1:
        # torch would neither shard nor reduce gradients, because it looks at the group that shares a replica only.
        strategy.sharding_strategy = ShardingStrategy.NO_SHARD
    else:
        arguments["device_mesh"] = mesh


def wrapping(strategy: Any) -> AbstractContextManager[Any]:
    """Return a context in which torch's `wrap` shards modules, after they are moved to the device."""

    def wrap(module: Module, **arguments: Any) -> FullyShardedDataParallel:
        with prepare_units(strategy, module):
            return FullyShardedDataParallel(module, **arguments)

    return enable_wrap(
        wrapper_cls=wrap,
        cpu_offload=strategy.cpu_offload,
        mixed_precision=strategy.mixed_precision_config,
        sharding_strategy=strategy.sharding_strategy,
        **fsdp_arguments(strategy),
    )


@contextmanager
def prepare_units(strategy: Any, module: Module) -> Iterator[None]:
    """Return a context in which to wrap a module, whose units are moved to the device one by one.

    Raises:
        ValueError: The module has no parameters.
    """
    if next(module.parameters(), None) is None:
        raise ValueError(
            f"the module must have parameters to shard, got {type(module).__name__} without any: pass "
            "`strategy='hpu_ddp'`"
        )
    arguments = fsdp_arguments(strategy)
    if any(isinstance(part, FullyShardedDataParallel) for part in module.modules()):
        # The program has wrapped parts of it, and Lightning does not wrap the rest.
        move_to_device(module)
    for ignored in arguments.get("ignored_modules") or ():
        # torch notes their parameters before it shards a unit, and a moved parameter may be another object.
        move_to_device(ignored)
    with _torch.moving_units(DEVICE, move_to_device), warnings.catch_warnings():
        # torch advises to use DistributedDataParallel instead.
        warnings.filterwarnings("ignore", message="The `NO_SHARD` sharding strategy is deprecated")
        yield


def move_to_device(module: Module) -> None:
    """Move the parameters and buffers of a module to the device, except those on the meta device.

    Parts that are sharded already stay, because their parameters may be offloaded to the host.
    """

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.is_meta or tensor.device == DEVICE else tensor.to(DEVICE)

    for part in module.children():
        if not isinstance(part, FullyShardedDataParallel):
            move_to_device(part)
    # `Module.to` refuses tensors on the meta device. A class's own method may have no `recurse`, such as that of
    # torchmetrics, whose states Lightning moves.
    own = type(module)._apply  # noqa: SLF001 - see above.
    apply: Any = own if "recurse" in inspect.signature(own).parameters else Module._apply  # noqa: SLF001 - see above.
    apply(module, move, recurse=False)
