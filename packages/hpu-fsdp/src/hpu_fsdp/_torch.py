"""Private names of torch that hpu-fsdp uses, and functions that depend on torch's version."""

import functools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor as ShardedTensor  # noqa: PLC0414 - re-exported.
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    _runtime_utils,
    fully_sharded_data_parallel,
)
from torch.distributed.fsdp._common_utils import HandleTrainingState, TrainingState
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn import Module
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX
from torch.utils._pytree import tree_leaves

from hpu_core.scaler import unscale_gradients

_WRAPPERS: Final = re.compile(r"(_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

# Restores what `patch_dtensor_random` replaces, when a strategy closes it.
patches: Final = ExitStack()

# Strategies that keep parameters unsharded between forward and backward.
_UNSHARDED_AFTER_FORWARD = frozenset({"SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"})


class HPUShardedGradScaler(ShardedGradScaler):
    """Gradient scaler for modules on HPU, also for those with parameters in host memory, or without gradients."""

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = unscale_gradients(super()._unscale_grads_, *args, **kwargs)
        # torch would copy flags of CPU gradients with `_foreach_copy_` between devices, which the simulator refuses.
        return {device: flag.to("hpu") for device, flag in found.items()}


def drop_stale_gradients(module: Module) -> None:
    """Drop the sharded gradients whose parameters' gradients are None, before a backward pass.

    Lightning clears gradients between forward and backward. Without this, torch 2.0 to 2.13 accumulate the previous
    step's gradients of the last wrapped module with `SHARD_GRAD_OP`, because its hook runs before the root's, which
    drops them.
    """
    for part in FullyShardedDataParallel.fsdp_modules(module):
        handle: Any = part._handle  # noqa: SLF001 - torch has no public name for it.
        if handle is not None and part.sharding_strategy.name in _UNSHARDED_AFTER_FORWARD:
            handle._reset_flat_param_grad_info_if_needed()  # noqa: SLF001 - as above.


def watch_loss(module: Module, loss: torch.Tensor) -> None:
    """Have torch begin and end a backward pass inside of the root's forward pass, where manual optimization has it.

    torch does so by hooks on the outputs of the forward pass, which does not have any yet. Without this, torch 2.3 to
    2.13 add the gradients of all steps.
    """
    if not isinstance(module, FullyShardedDataParallel) or module.training_state is TrainingState.IDLE:
        return
    # As torch does at the end of a forward pass.
    handle: Any = module._handle  # noqa: SLF001 - torch has no public name for a unit's flat parameter.
    _runtime_utils._register_pre_backward_hooks(module, module, loss, handle)  # noqa: SLF001 - torch calls it in its own forward pass alone.
    module.training_state = TrainingState.IDLE
    if handle is not None:
        handle._training_state = HandleTrainingState.IDLE  # noqa: SLF001 - torch sets it at the end of a forward pass alone.


def reject_double_backward(module: Module) -> None:
    """Have the units inside of a module raise a NotImplementedError in a backward pass with `create_graph=True`.

    torch documents no such pass, frees the parameters that the second one needs, and computes other gradients silently.
    """
    for part in FullyShardedDataParallel.fsdp_modules(module):
        if part is not module:
            part.register_forward_hook(_reject_double_backward)


def _reject_double_backward(unit: Module, _: object, output: Any) -> None:
    def check(gradient: torch.Tensor) -> None:  # noqa: ARG001 - a hook's argument.
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "FSDP computes no second derivatives, and a backward pass with `create_graph=True` has reached its "
                f"unit {type(unit.module).__name__}: pass `strategy='hpu_ddp'`, 'hpu_deepspeed_stage_2', or no "
                "`auto_wrap_policy`"
            )

    for tensor in tree_leaves(output):
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            tensor.register_hook(check)


def has_extra_states(module: Module) -> bool:
    """Return whether a part of a module has a state of its own beside tensors, such as the scales of fp8."""
    return any(type(part).get_extra_state is not Module.get_extra_state for part in module.modules())


def extra_states(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the extra states of a state dict."""
    return {key: value for key, value in state_dict.items() if key.rpartition(".")[2] == _EXTRA_STATE_KEY_SUFFIX}


@contextmanager
def resize_extra_states(module: Module, sizes: Mapping[str, torch.Size | None]) -> Iterator[None]:
    """Return a context in which a module's state dict has extra states of the given sizes, to load saved ones into."""

    def resize(_: Module, state_dict: dict[str, Any], *__: object) -> None:
        for key, value in extra_states(state_dict).items():
            size = sizes.get(key)
            if size is not None and isinstance(value, torch.Tensor) and value.shape != size:
                state_dict[key] = value.new_empty(size)

    # A public name exists from torch 2.5 on.
    hook = module._register_state_dict_hook(resize)  # noqa: SLF001 - see above.
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def loading_extra_states(module: Module, states: Mapping[str, Any]) -> Iterator[None]:
    """Return a context in which to load a module's weights from one file; its extra states become the given ones.

    torch passes its own placeholders if it loads a single parameter into a module with DTensors.
    """

    def replace(state: Any, state_dict: dict[str, Any], prefix: str, *_: object) -> None:
        state_dict[prefix + _EXTRA_STATE_KEY_SUFFIX] = state

    with ExitStack() as stack:
        for name, part in module.named_modules():
            key = f"{_WRAPPERS.sub('', name)}.{_EXTRA_STATE_KEY_SUFFIX}".removeprefix(".")
            if key in states:
                hook = part._register_load_state_dict_pre_hook(functools.partial(replace, states[key]))  # noqa: SLF001
                stack.callback(hook.remove)
        yield


def prepare_sharded(module: Module) -> bool:
    """Reduce gradients by sums, which are divided apart, and return whether parameters of a module are DTensors."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_force_sum_reduction_for_comms(True)
            # An evaluation before leaves parameters gathered with `reshard_after_forward=False`.
            part.reshard()
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def patch_dtensor_random() -> None:
    """Let DTensors on HPU draw random numbers on the device of this process.

    torch derives the index of the device from the rank, but a process has one device, with index 0. The strategies call
    this function. A program without Lightning calls it before it initializes parameters that are sharded already, such
    as those from the meta device. It needs torch 2.9 or newer.
    """
    from torch.distributed.tensor import _random

    helper: Any = getattr(_random, "_resolve_device", None)
    if helper is None or hasattr(helper, "__wrapped__"):
        return

    @functools.wraps(helper)
    def resolve(device_mesh: Any) -> torch.device:
        return torch.device("hpu", 0) if device_mesh.device_type == "hpu" else helper(device_mesh)

    patches.enter_context(replaced(_random, "_resolve_device", resolve))


@contextmanager
def moving_units(device: torch.device, move: Callable[[Module], None]) -> Iterator[None]:
    """Return a context in which FullyShardedDataParallel moves each unit to a device when it shards it.

    A policy wraps the innermost units first, so that a device holds one unsharded unit at a time. torch's own way,
    `device_id`, assigns a tensor of the device to the `data` of a CPU parameter, which the bridge refuses.
    """
    construct = FullyShardedDataParallel.__init__
    # Called once a unit's parts are wrapped.
    init_handle: Any = vars(fully_sharded_data_parallel)["_init_param_handle_from_module"]

    @functools.wraps(construct)
    def construct_on_device(self: Any, *args: Any, **kwargs: Any) -> None:
        # For torch's choice of the device's functions, before any parameter is on it. Lightning passes an index alone.
        construct(self, *args, **{**kwargs, "device_id": device})

    @functools.wraps(init_handle)
    def move_and_init(state: Any, module: Module, *args: Any, **kwargs: Any) -> Any:
        move(module)
        return init_handle(state, module, *args, **kwargs)

    with (
        replaced(FullyShardedDataParallel, "__init__", construct_on_device),
        replaced(fully_sharded_data_parallel, "_init_param_handle_from_module", move_and_init),
    ):
        yield


@contextmanager
def empty_shards_on(device: torch.device) -> Iterator[None]:
    """Return a context in which a rank without a row of a parameter loads a sharded checkpoint.

    torch 2.0 to 2.13 take the current device of CUDA for that of a ShardedTensor without local shards. In a job with
    more ranks than the parameter has rows, such as a bias, some ranks have none.
    """
    thread, original = threading.get_ident(), torch.cuda.current_device
    with replaced(torch.cuda, "current_device", lambda: device if threading.get_ident() == thread else original()):
        yield


@contextmanager
def optimizer_states_on(device: torch.device) -> Iterator[None]:
    """Return a context in which torch allocates the optimizer states of a sharded checkpoint on a device.

    torch 2.4 passes the index alone, which means CUDA. torch 2.13 does not; which release corrected it is unknown, so
    the function is replaced on every torch. torch 2.13 returns no "state" of an optimizer without one, such as SGD, and
    then requires it.
    """
    from torch.distributed.checkpoint import optimizer

    load: Callable[..., dict[str, Any]] = optimizer.load_sharded_optimizer_state_dict

    def load_with_state(model_state_dict: Any, optimizer_key: str, **options: Any) -> dict[str, Any]:
        loaded = load(model_state_dict, optimizer_key, **options)
        loaded[optimizer_key].setdefault("state", {})
        return loaded

    def allocate(properties: Any, size: Sequence[int], device_type: str = device.type) -> torch.Tensor:
        options = {name: getattr(properties, name) for name in ("dtype", "layout", "requires_grad", "pin_memory")}
        return torch.empty(size, device=device if device_type == device.type else device_type, **options)

    with (
        replaced(optimizer, "_alloc_tensor", allocate),
        replaced(optimizer, "load_sharded_optimizer_state_dict", load_with_state),
    ):
        yield


@contextmanager
def replaced(owner: object, name: str, replacement: object) -> Iterator[None]:
    """Return a context in which an attribute has another value."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)
