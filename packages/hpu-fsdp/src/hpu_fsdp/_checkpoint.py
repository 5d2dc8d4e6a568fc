"""Checkpoints: atomic replacement, asynchronous saves, and loads of what Lightning's methods cannot load."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    OptimStateKeyType,
    StateDictType,
)

from hpu_core.checkpoints.plugin import HPUCheckpointIO
from hpu_fsdp._lightning import (
    FSDPStrategy,
    TrainerFn,
    load_hyperparameters,
    loading_stateless_optimizers,
    sharded_saves,
)
from hpu_fsdp._setup import DEVICE
from hpu_fsdp._torch import (
    ShardedTensor,
    empty_shards_on,
    extra_states,
    has_extra_states,
    loading_extra_states,
    optimizer_states_on,
    replaced,
    resize_extra_states,
)

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import _PATH

# Lightning's file with everything but weights and optimizer states, which it writes last.
METADATA: Final = "meta.pt"


def save(
    strategy: Any, save_checkpoint: Callable[..., None], path: "_PATH", state: dict[str, Any], storage_options: Any
) -> None:
    """Save a checkpoint of the Trainer that replaces `path` once it is complete on all ranks.

    Args:
        strategy: The strategy.
        save_checkpoint: Lightning's method.
        path: File, or folder for sharded states.
        state: State of module and Trainer.
        storage_options: Options of the plugin that writes one file; Lightning refuses them for shards.
    """
    if not strategy.saves_sharded:
        # Lightning's method would broadcast the path, which only rank 0 writes to.
        if strategy.global_rank == 0:
            strategy.checkpoint_io.save_checkpoint(state, path, storage_options)
        return
    # A copy, because Lightning takes what it has written out of it.
    state = {**state}
    with strategy.replacing(path, _buffered) as target:
        save_checkpoint(target, state)
        if strategy.global_rank == 0:
            HPUCheckpointIO().save_checkpoint(state, target / METADATA)


def save_with_fabric(
    strategy: Any,
    save_checkpoint: Callable[..., None],
    path: "_PATH",
    state: dict[str, Any],
    storage_options: Any,  # noqa: ARG001 - Lightning's method refuses them.
) -> None:
    """Save a checkpoint of Fabric as `save`; `state` has the sharded module, its optimizers and other objects."""
    # Other objects than tensors, such as modules, stay.
    state = {key: _map(lambda tensor: tensor.detach().cpu(), value) for key, value in state.items()}
    with strategy.replacing(path, _buffered, as_file=not strategy.saves_sharded) as target:
        save_checkpoint(target, state)


def load(
    strategy: Any, load_checkpoint: Callable[..., Any], path: "_PATH", state: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Load a checkpoint with Lightning's method, and return what the method does.

    Args:
        strategy: The strategy.
        load_checkpoint: Lightning's method.
        path: The checkpoint.
        state: Fabric's modules to load, and other objects, by their keys in the checkpoint.
        options: Further arguments of the method.

    Raises:
        ValueError: It has no states of optimizers to continue a training.
    """
    source = strategy.locate_checkpoint(path)
    # That of the Trainer's module; with Fabric, the program chooses keys.
    key = getattr(strategy, "weights_key", None)
    if key is not None:
        state = {key: strategy.model}
    objects = state if isinstance(state, dict) else {}
    modules = {name: value for name, value in objects.items() if isinstance(value, torch.nn.Module)}
    module = getattr(strategy, "lightning_module", None)
    trains = module is not None and module.trainer.training
    # Lightning names a folder that is no checkpoint.
    if trains and (source / METADATA).is_file():
        _check_optimizers(source)
    # Lightning's method of FSDP fails for optimizers without a state in one file, such as SGD.
    loads_optimizers = trains and isinstance(strategy, FSDPStrategy) and not source.is_dir()
    skipped: AbstractContextManager[None] = nullcontext()
    if module is not None and not trains:
        # FSDP2's loads their states whenever there are optimizers, so after `fit` in `test` as well, where a checkpoint
        # of weights has none.
        skipped = replaced(strategy, "optimizers", [])
    elif loads_optimizers:
        # It loads none in an evaluation.
        skipped = replaced(strategy.lightning_module.trainer.state, "fn", TrainerFn.VALIDATING)
    with (
        optimizer_states_on(DEVICE),
        empty_shards_on(DEVICE),
        _extra_states_of(source, modules, weights_only=options.get("weights_only")),
        loading_stateless_optimizers(),
        skipped,
    ):
        loaded: dict[str, Any] = load_checkpoint(source, **options)
    if loads_optimizers:
        _load_optimizers(strategy, loaded)
    return loaded


@contextmanager
def _buffered(partial: Path) -> Iterator[Callable[[Any], None]]:
    """Return the context in which shards are copied to host memory, of the function that writes them."""
    copied: dict[str, Any] = {}

    def write(group: Any) -> None:
        # torch before 2.3 has no `checkpoint_id`.
        state_dict_saver.save(copied, storage_writer=FileSystemWriter(partial), process_group=group)

    with sharded_saves() as states:
        yield write
    copied.update(_copy_to_cpu(states[0]))


def _check_optimizers(path: Path) -> None:
    """Raise a ValueError for a sharded checkpoint without states of optimizers, such as one of weights only."""
    if not any(key.startswith("optimizer") for key in FileSystemReader(path).read_metadata().state_dict_metadata):
        raise ValueError(
            f"the checkpoint must have states of the optimizers to continue a training, got {str(path)!r} with weights "
            "only: pass one that was saved without `save_weights_only=True`; `test` and `predict` take this one"
        )


def _load_optimizers(strategy: Any, checkpoint: Mapping[str, Any]) -> None:
    """Load states of optimizers of one file, which may have been saved by another strategy.

    Raises:
        ValueError: The checkpoint is of another number of optimizers.
    """
    saved = checkpoint.get("optimizer_states")
    if saved is None:
        return
    if len(saved) != len(strategy.optimizers):
        raise ValueError(
            f"the checkpoint must have a state for each of {len(strategy.optimizers)} optimizers, got {len(saved)}: "
            "return the optimizers with which it was saved from `configure_optimizers`"
        )
    contents = FullStateDictConfig(offload_to_cpu=True), FullOptimStateDictConfig(offload_to_cpu=True)
    with FullyShardedDataParallel.state_dict_type(strategy.model, StateDictType.FULL_STATE_DICT, *contents):
        for optimizer, state in zip(strategy.optimizers, saved, strict=True):
            if not state["state"]:
                load_hyperparameters(optimizer, state)
                continue
            named = FullyShardedDataParallel.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_NAME, strategy.model)
            optimizer.load_state_dict(
                FullyShardedDataParallel.optim_state_dict_to_load(strategy.model, optimizer, named)
            )


@contextmanager
def _extra_states_of(path: Path, modules: dict[str, Any], *, weights_only: bool | None) -> Iterator[None]:
    """Return a context in which modules are loaded with their extra states, such as the scales of fp8.

    torch loads sharded tensors into those of the module, which have another size before the first step. Of one file,
    Lightning passes on its own lazy tensors, and to modules with DTensors only parameters and buffers.
    """
    modules = {name: module for name, module in modules.items() if has_extra_states(module)}
    with ExitStack() as stack:
        if path.is_dir():
            saved = FileSystemReader(path).read_metadata().state_dict_metadata if modules else {}
            for name, module in modules.items():
                sizes = {key.removeprefix(f"{name}."): getattr(entry, "size", None) for key, entry in saved.items()}
                stack.enter_context(resize_extra_states(module, sizes))
            yield
            return
        checkpoint = torch.load(path, mmap=True, map_location="cpu", weights_only=weights_only) if modules else {}
        for name, module in modules.items():
            # The Trainer's key of one file and that of shards differ.
            states = extra_states(checkpoint.get(name, checkpoint.get("state_dict", {})))
            stack.enter_context(loading_extra_states(module, states))
        yield


def _map(function: "Callable[[torch.Tensor], Any]", value: Any) -> Any:
    """Return a copy of nested containers with a function applied to their tensors; other objects stay."""
    if isinstance(value, (torch.Tensor, ShardedTensor)):
        return function(value)
    if type(value) in {list, tuple}:
        return type(value)(_map(function, item) for item in value)
    if isinstance(value, dict):
        return {key: _map(function, item) for key, item in value.items()}
    return value


def _copy_to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a state in host memory, which training does not change."""

    def copy_tensor(tensor: Any) -> Any:
        # A sharded tensor, which is on the CPU, copies its shards.
        return copy.deepcopy(tensor) if isinstance(tensor, ShardedTensor) else tensor.detach().to("cpu", copy=True)

    return dict(_map(copy_tensor, state))
