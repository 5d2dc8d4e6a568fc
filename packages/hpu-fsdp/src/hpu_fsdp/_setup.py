"""Setup that FSDP needs on HPU: eager mode, an open device before a device mesh is built, and materialized modules."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, enable_wrap
from torch.nn import Module

from hpu_core import bridge
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.strategy import constructor_arguments
from hpu_fsdp import _torch, _torch_2_4, _transformers, context_parallel
from hpu_fsdp._lightning import check_version, fsdp_arguments, rank_zero_warn

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import Self

    class _Strategy:
        """Part of Lightning's parallel strategies, the Trainer's and Fabric's, that is used here."""

        accelerator: Any
        cluster_environment: Any
        cpu_offload: Any
        mixed_precision_config: Any
        num_nodes: Any
        num_processes: Any
        process_groups: ProcessGroupManager
        world_size: Any

        def __init__(self, **arguments: Any) -> None: ...
        @property
        def root_device(self) -> torch.device: ...
        def create_process_group(self) -> None: ...
        def setup_environment(self) -> None: ...
        def batch_to_device(self, batch: Any, *args: Any, **kwargs: Any) -> Any: ...
        @property
        def distributed_sampler_kwargs(self) -> dict[str, Any]: ...
        def teardown(self) -> None: ...

else:
    _Strategy = object

# As Lightning's, by which LightningCLI parses a list of classes.
Policy: TypeAlias = set[type[Module]] | Callable[[Module, bool, int], bool] | ModuleWrapPolicy

# The index that every tensor on the device has.
DEVICE: Final = torch.device("hpu", 0)

SHARDING_STRATEGIES: Final = tuple(strategy.name for strategy in ShardingStrategy)
_STATE_DICT_TYPES: Final = ("full", "sharded")

# Bytes that a card notices. Smaller modules gain nothing by units.
_LARGE_UNIT: Final = 2**28


class ShardedSetupMixin(_Strategy):
    """Mixin for strategies that shard parameters; list it after hpu-core's base and before Lightning's strategy.

    Attributes:
        context_parallel_size: Number of neighbouring ranks that share each sequence.
        context_parallel: These ranks, from `setup_environment` on.
    """

    context_parallel_size = 1
    context_parallel = context_parallel.ContextParallel()

    _shared_attention: ExitStack | None = None

    def setup_environment(self) -> None:
        """Create the process group, and then run Lightning's setup, which opens the device and builds device meshes.

        Raises:
            RuntimeError: The bridge is in lazy mode, or torch is older than 2.3, and cannot free the storage of a
                parameter.
            ValueError: `context_parallel_size` does not divide the ranks.
        """
        if bridge.is_lazy():
            raise RuntimeError(
                f"{type(self).__name__} needs eager mode, got lazy mode, which cannot free the storage of a gathered "
                "parameter: set PT_HPU_LAZY_MODE=0 before the program starts"
            )
        # Before Lightning's, which passes `device_id`: torch wants one with an index there.
        self.create_process_group()
        super().setup_environment()
        ranks, stride = self._data_layout()
        if ranks % self.context_parallel_size:
            raise ValueError(
                "`context_parallel_size` must be a divisor of the number of ranks with different data, "
                f"{ranks}, got {self.context_parallel_size}"
            )
        self.context_parallel = context_parallel.ContextParallel.create(self.context_parallel_size, stride)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Arguments of DistributedSampler: the ranks that share a sequence have the same samples."""
        ranks = super().distributed_sampler_kwargs
        return {name: number // self.context_parallel_size for name, number in ranks.items()}

    def batch_to_device(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Move a batch to the device, with context parallelism this rank's part; see `ContextParallel.shard`."""
        return super().batch_to_device(self.context_parallel.shard(batch), *args, **kwargs)

    def teardown(self) -> None:
        """Restore the attention of models that shared it, and tear the strategy down."""
        context_parallel.activate(context_parallel.ContextParallel())
        if self._shared_attention is not None:
            self._shared_attention.close()
        super().teardown()

    def _data_layout(self) -> tuple[int, int]:
        """Return the number of ranks with different parts of the data, and the distance between neighbours of them."""
        return self.world_size, 1

    def _share_attention(self, module: Module) -> None:
        """Make the attention of a module exchange sequences for heads.

        Raises:
            ValueError: It has no attention that can.
        """
        context_parallel.activate(self.context_parallel)
        if self.context_parallel.size == 1:
            return
        self._shared_attention = _transformers.share_attention(module)
        is_own = any(isinstance(part, context_parallel.UlyssesAttention) for part in module.modules())
        if self._shared_attention is None and not is_own:
            raise ValueError(
                "`context_parallel_size` needs a model of transformers, or a module with `hpu_fsdp.UlyssesAttention`, "
                f"got {type(module).__name__} with neither: its attention would see a part of each sequence"
            )


class FSDPSetupMixin(ShardedSetupMixin):
    """Mixin for strategies with FullyShardedDataParallel; list it as ShardedSetupMixin."""

    sharding_strategy: Any

    def __init__(  # noqa: PLR0913 - the arguments that are checked here.
        self,
        *,
        sharding_strategy: object,
        state_dict_type: object,
        auto_wrap_policy: object,
        device_mesh: object,
        process_group_backend: str | None,
        timeout: timedelta | None,
        context_parallel_size: int,
        failure_detection: bool,
        **arguments: Any,
    ) -> None:
        check_version(type(self))
        self.context_parallel_size = validate_size("context_parallel_size", context_parallel_size)
        name = sharding_strategy.upper() if isinstance(sharding_strategy, str) else sharding_strategy
        if not isinstance(name, ShardingStrategy) and name not in SHARDING_STRATEGIES:
            raise ValueError(
                f"`sharding_strategy` must be {', '.join(map(repr, SHARDING_STRATEGIES))}, got {sharding_strategy!r}"
            )
        if state_dict_type not in _STATE_DICT_TYPES:
            raise ValueError(f"`state_dict_type` must be 'full' or 'sharded', got {state_dict_type!r}")
        if arguments.get("device_id") is not None:
            raise TypeError(
                f"`device_id` must not be set, got {arguments['device_id']!r}: a process has one device, to which the "
                "strategy moves each unit when it shards it"
            )
        if isinstance(auto_wrap_policy, type):
            raise TypeError(
                f"`auto_wrap_policy` must be a set of module classes or a policy, got the class "
                f"{auto_wrap_policy.__name__}: pass {{{auto_wrap_policy.__name__}}}"
            )
        if isinstance(device_mesh, (int, str)) or (isinstance(device_mesh, Sequence) and not _is_pair(device_mesh)):
            raise ValueError(
                "`device_mesh` must be (replicas, ranks that share one), two positive ints, or a mesh, got "
                f"{device_mesh!r}"
            )
        self.process_groups = ProcessGroupManager(process_group_backend, timeout, failure_detection)
        super().__init__(
            sharding_strategy=sharding_strategy,
            state_dict_type=state_dict_type,
            auto_wrap_policy=auto_wrap_policy,
            device_mesh=device_mesh,
            process_group_backend=self.process_groups.backend,
            timeout=self.process_groups.timeout,
            **arguments,
        )

    @classmethod
    def from_lightning(cls, strategy: Any) -> "Self":
        """Return a strategy with the arguments of one of Lightning's, which replaces it on HPU."""
        arguments = {**constructor_arguments(cls, strategy), **fsdp_arguments(strategy)}
        # The Trainer's strategy keeps the further arguments under this name, Fabric's under another.
        arguments.pop("kwargs", None)
        replacement: Any = cls(**arguments)
        # Lightning does not keep the policy of the user, only what it made of it.
        replacement._activation_checkpointing_kwargs = strategy._activation_checkpointing_kwargs  # noqa: SLF001 - see above.
        return cast("Self", replacement)

    def setup_environment(self) -> None:
        """Create the process group, open the device and choose the sharding.

        Raises:
            RuntimeError: See ShardedSetupMixin.
        """
        # Lightning would build a mesh of GPUs, and torch one of a device of its own choice in a process without one.
        mesh = fsdp_arguments(self).pop("device_mesh", None)
        super().setup_environment()
        self._choose_sharding(mesh)
        self._check_storages()

    def _check_storages(self) -> None:
        if self.sharding_strategy is not ShardingStrategy.NO_SHARD and not _torch_2_4.frees_storages(DEVICE):
            raise RuntimeError(
                f"{type(self).__name__} needs a torch that frees storages of hpu tensors, got torch "
                f"{torch.__version__}, which cannot free a gathered parameter: use torch 2.3 or newer, which comes "
                "with SynapseAI 1.17, or `strategy='hpu_ddp'` or `strategy='hpu_deepspeed'`"
            )

    def _choose_sharding(self, mesh: "tuple[int, int] | DeviceMesh | None" = None) -> None:
        """Build the mesh of hybrid sharding, and choose `NO_SHARD` where a device has all parameters."""
        arguments = fsdp_arguments(self)
        if self.world_size == 1:
            # Gathering, freeing and scattering on one device copies everything for nothing.
            self.sharding_strategy = ShardingStrategy.NO_SHARD
            return
        if mesh is None and arguments.get("process_group") is None and "HYBRID" in self.sharding_strategy.name:
            # torch would take all devices of the machine for those of this job.
            mesh = (self.num_nodes, self.num_processes)
        if mesh is None:
            return
        mesh = _make_hybrid_mesh(mesh, self.world_size)
        if "HYBRID" in self.sharding_strategy.name and mesh.size(mesh.ndim - 1) == 1:
            # torch would neither shard nor reduce gradients, because it looks at the group that shares a replica only.
            self.sharding_strategy = ShardingStrategy.NO_SHARD
        else:
            arguments["device_mesh"] = mesh

    def _wrapping_context(self) -> AbstractContextManager[Any]:
        """Return a context in which torch's `wrap` shards modules, after they are moved to the device."""
        return enable_wrap(
            wrapper_cls=self._wrap,
            cpu_offload=self.cpu_offload,
            mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy,
            **fsdp_arguments(self),
        )

    def _wrap(self, module: Module, **arguments: Any) -> FullyShardedDataParallel:
        with self._preparing(module):
            return FullyShardedDataParallel(module, **{**fsdp_arguments(self), **arguments})

    def _finish_wrapping(self, module: Module) -> None:
        """Skip communication on a single device, once the module is wrapped; warn of a large module in one unit."""
        if self.world_size == 1:
            _torch.skip_all_reduce(module)
            return
        units = FullyShardedDataParallel.fsdp_modules(module)
        if len(units) != 1 or self.sharding_strategy is ShardingStrategy.NO_SHARD:
            return
        ranks = torch.distributed.get_world_size(units[0].process_group)
        size = ranks * sum(p.numel() * p.element_size() for p in module.parameters())
        if size > _LARGE_UNIT:
            rank_zero_warn(
                f"FSDP gathers all parameters at once, {size / 2**30:.1f} GiB, because the module is one unit: pass "
                "`auto_wrap_policy={Block}` to the strategy, with the classes of the blocks that repeat"
            )

    @contextmanager
    def _preparing(self, module: Module) -> Iterator[None]:
        """Return a context in which to wrap a module, whose units are moved to the device one by one.

        Raises:
            ValueError: The module has no parameters.
        """
        if next(module.parameters(), None) is None:
            raise ValueError(
                f"the module must have parameters to shard, got {type(module).__name__} without any: pass "
                "`strategy='hpu_ddp'`"
            )
        arguments = fsdp_arguments(self)
        if has_meta_tensors(module):
            arguments.setdefault("param_init_fn", materialize)
        if any(isinstance(part, FullyShardedDataParallel) for part in module.modules()):
            # The program has wrapped parts of it, and Lightning does not wrap the rest.
            move_to_device(module)
        for ignored in arguments.get("ignored_modules") or ():
            # torch notes their parameters before it shards a unit, and a moved parameter may be another object.
            move_to_device(ignored)
        no_warning = _torch.ignore_no_shard_warning(self.sharding_strategy)
        with _torch.moving_units(DEVICE, move_to_device), no_warning:
            yield


def validate_size(name: str, size: Any, *, allows_auto: bool = False) -> Any:
    """Return a number of ranks.

    Raises:
        ValueError: It is no positive int, nor "auto" where that is allowed.
    """
    if not (allows_auto and size == "auto") and (not isinstance(size, int) or size < 1):
        rule = "a positive int or 'auto'" if allows_auto else "a positive int"
        raise ValueError(f"`{name}` must be {rule}, got {size!r}")
    return size


def has_meta_tensors(module: Module) -> bool:
    """Return whether a parameter or buffer of a module is on the meta device."""
    return any(tensor.is_meta for tensors in (module.parameters(), module.buffers()) for tensor in tensors)


def move_to_device(module: Module) -> None:
    """Move the parameters and buffers of a module to the device, except those on the meta device.

    Parts that are sharded already stay, because their parameters may be offloaded to the host.
    """

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.is_meta or tensor.device == DEVICE else tensor.to(DEVICE)

    for part in module.children():
        if not isinstance(part, FullyShardedDataParallel):
            move_to_device(part)
    module._apply(move, recurse=False)  # noqa: SLF001 - `Module.to` refuses tensors on the meta device.


def materialize(module: Module) -> None:
    """Allocate the parameters and buffers of one module, without its children, and initialize them.

    Raises:
        TypeError: The module has no `reset_parameters`.
    """
    if not any(tensor.is_meta for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
        return
    reset: Callable[[], None] | None = getattr(module, "reset_parameters", None)
    if reset is None:
        raise TypeError(
            f"{type(module).__name__} must have a method `reset_parameters` to be created on the meta device: define "
            "it, or pass `param_init_fn` to the strategy"
        )
    module.to_empty(device=DEVICE, recurse=False)
    reset()


def _is_pair(mesh: Sequence[object]) -> bool:
    return len(mesh) == 2 and all(isinstance(size, int) and size > 0 for size in mesh)  # noqa: PLR2004 - two dimensions.


def _make_hybrid_mesh(mesh: Any, world_size: int) -> "DeviceMesh":
    """Return the device mesh of hybrid sharding.

    Raises:
        ValueError: The mesh has not as many devices as there are ranks, or is not one of HPUs.
    """
    # From torch 2.2 on, as Lightning's argument.
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if isinstance(mesh, DeviceMesh):
        if mesh.device_type != "hpu":
            raise ValueError(
                f"`device_mesh` must be a mesh of 'hpu', got one of {mesh.device_type!r}: pass "
                "`(replication size, sharding size)` instead"
            )
        return mesh
    replicas, shards = mesh
    if replicas * shards != world_size:
        raise ValueError(
            f"`device_mesh` must have as many devices as there are ranks ({world_size}), got "
            f"{replicas} x {shards} = {replicas * shards}"
        )
    return init_device_mesh("hpu", (replicas, shards))
