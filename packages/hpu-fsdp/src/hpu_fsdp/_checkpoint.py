"""Checkpoints: atomic replacement, asynchronous saves, and errors for checkpoints of other strategies."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from hpu_core import atomic_dir, frameworks
from hpu_core.async_save import AsyncSaveMixin
from hpu_core.checkpoint import HPUCheckpointIO
from hpu_fsdp._lightning import FabricFSDPStrategy, sharded_saves
from hpu_fsdp._setup import DEVICE
from hpu_fsdp._torch import (
    ShardedTensor,
    empty_shards_on,
    extra_states,
    has_extra_states,
    loading_extra_states,
    resized_extra_states,
)
from hpu_fsdp._torch_2_4 import gathering_without_cuda, optimizer_states_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning.fabric.utilities.types import _PATH

    class _Strategy:
        """Part of Lightning's parallel strategies, the Trainer's and Fabric's, that is used here."""

        global_rank: Any
        local_rank: Any

        def barrier(self, *args: Any, **kwargs: Any) -> None: ...
        def broadcast(self, obj: Any, src: int = 0) -> Any: ...
        def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]: ...
        def teardown(self) -> None: ...
        def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any: ...
        def remove_checkpoint(self, filepath: _PATH) -> None: ...
        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None: ...
        def with_random_states(self, state: dict[str, Any]) -> dict[str, Any]: ...

else:
    _Strategy = object

# Lightning's file with everything but weights and optimizer states, which it writes last.
METADATA: Final = "meta.pt"

NOT_PASSED_ON: Final = frozenset({"self", "__class__", "async_save", "kwargs"})
"""Local names of a constructor that are no arguments of Lightning's."""


class CheckpointMixin(AsyncSaveMixin, _Strategy):
    """Mixin for strategies that save sharded checkpoints; list it before Lightning's strategy.

    Attributes:
        weights_key: Key of the weights in a sharded checkpoint; None if the program chooses it.
    """

    weights_key: str | None = None

    @contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Yield a path that replaces `path` when the block ends on all ranks; one that fails keeps the old content."""
        self.finish_save()
        with atomic_dir.atomic_dir(path, self.global_rank, self.local_rank, self.barrier) as partial:
            yield partial

    def _write_shards(self, state: dict[str, Any], partial: Path, path: Path) -> None:
        """Copy a sharded state to host memory on this thread, and write it on another one."""
        copied = _copy_to_cpu(state)

        def write(group: Any) -> None:
            # torch before 2.3 has no `checkpoint_id`.
            state_dict_saver.save(copied, storage_writer=FileSystemWriter(partial), process_group=group)

        self.write_async(write, partial, path)

    def _load(
        self,
        load_checkpoint: "Callable[..., Any]",
        path: "_PATH",
        weights_only: bool | None,
        modules: dict[str, Any],
        *arguments: Any,
    ) -> dict[str, Any]:
        """Load a checkpoint with Lightning's method, and return what the method does.

        Args:
            load_checkpoint: Lightning's method.
            path: The checkpoint.
            weights_only: As in `torch.load`.
            modules: Modules to load, by their keys in the checkpoint.
            *arguments: Further arguments of the method.
        """
        source = atomic_dir.resolve(self.broadcast(path))
        self._check_loadable(source)
        # Lightning before 2.6 has no such argument.
        options = {} if weights_only is None else {"weights_only": weights_only}
        with optimizer_states_on(DEVICE), empty_shards_on(DEVICE), _extra_states_of(source, modules, options):
            loaded: dict[str, Any] = load_checkpoint(source, *arguments, **options)
        return loaded

    def _check_loadable(self, path: Path) -> None:
        """Raise an error for a folder that is not a checkpoint of this strategy.

        Raises:
            ValueError: It is not; the message says what it is.
        """
        if not path.is_dir():
            return
        if not (path / METADATA).is_file():
            kind = "a checkpoint of DeepSpeed" if _is_deepspeed(path) else "a folder without that file"
            raise ValueError(
                f"the checkpoint must be one file, or a folder with {METADATA} that {type(self).__name__} has saved, "
                f"got {str(path)!r}, {kind}"
            )
        if self.weights_key is None:
            return
        keys = FileSystemReader(path).read_metadata().state_dict_metadata
        if not any(key.startswith(f"{self.weights_key}.") for key in keys):
            found = sorted({key.partition(".")[0] for key in keys})
            raise ValueError(
                f"the checkpoint must have weights under {self.weights_key!r}, got {str(path)!r} with "
                f"{', '.join(map(repr, found))}, of another strategy: convert it with `python -m "
                f"{frameworks.current().fabric().__name__}.utilities.consolidate_checkpoint {path}`"
            )


class TrainerCheckpointMixin(CheckpointMixin):
    """CheckpointMixin of the Trainer's strategies."""

    checkpoint_io: Any
    model: Any

    @property
    @abstractmethod
    def saves_sharded(self) -> bool:
        """Whether checkpoints are folders with a file per rank."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: "_PATH", storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint that replaces `filepath` once it is complete on all ranks.

        Args:
            checkpoint: State of module and Trainer.
            filepath: File, or folder for sharded states.
            storage_options: Not supported, as in Lightning.

        Raises:
            IsADirectoryError: A full checkpoint cannot replace a folder that is not a checkpoint.
            TypeError: `storage_options` is set.
        """
        path = Path(self.broadcast(filepath))
        # A copy, because Lightning takes what it has written out of it.
        checkpoint = {**self.with_random_states(checkpoint)}
        if self.saves_sharded:
            is_atomic = storage_options is None and is_replaceable(path)
        else:
            # Other plugins may write later, or to another place.
            is_atomic = is_sharded(path) and type(self.checkpoint_io) is HPUCheckpointIO
        if not is_atomic:
            super().save_checkpoint(checkpoint, path, storage_options)
        elif self.async_save:
            self.finish_save()
            partial = atomic_dir.prepare(path, self.local_rank, self.barrier)
            state: dict[str, Any] = {str(self.weights_key): checkpoint.pop("state_dict")}
            optimizers = checkpoint.pop("optimizer_states", [])
            state.update({f"optimizer_{index}": optimizer for index, optimizer in enumerate(optimizers)})
            if self.global_rank == 0:
                partial.mkdir()
                HPUCheckpointIO().save_checkpoint(checkpoint, partial / METADATA)
            self.barrier()
            self._write_shards(state, partial, path)
        else:
            with self._replacing(path) as partial:
                super().save_checkpoint(checkpoint, partial)
                if self.saves_sharded and self.global_rank == 0:
                    HPUCheckpointIO().save_checkpoint(checkpoint, partial / METADATA)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the state of an optimizer; the ranks gather a full one together.

        Args:
            optimizer: The optimizer.
        """
        with gathering_without_cuda():
            return super().optimizer_state(optimizer)

    def load_checkpoint(self, checkpoint_path: "_PATH", weights_only: bool | None = None) -> dict[str, Any]:
        """Load module and optimizer states, and return the rest of the checkpoint.

        Args:
            checkpoint_path: A full or a sharded checkpoint, saved on any number of devices.
            weights_only: As in `torch.load`.

        Raises:
            ValueError: It is a checkpoint of another strategy.
        """
        self.finish_save()
        return self._load(super().load_checkpoint, checkpoint_path, weights_only, {str(self.weights_key): self.model})


class FabricCheckpointMixin(CheckpointMixin):
    """CheckpointMixin of Fabric's strategies."""

    # Raises an error: torch writes the files.
    checkpoint_io = FabricFSDPStrategy.checkpoint_io

    def save_checkpoint(
        self,
        path: "_PATH",
        state: dict[str, Any],
        storage_options: Any | None = None,
        filter: "dict[str, Callable[[str, Any], bool]] | None" = None,  # noqa: A002 - Lightning's name.
    ) -> None:
        """Save a checkpoint that replaces `path` once it is complete on all ranks.

        Args:
            path: File, or folder for sharded states.
            state: The sharded module, its optimizers and other objects.
            storage_options: Not supported, as in Lightning.
            filter: Functions that select what to save of an object; not for sharded checkpoints.

        Raises:
            IsADirectoryError: A full checkpoint cannot replace a folder that is not a checkpoint.
            TypeError: `storage_options` is set.
        """
        target = Path(self.broadcast(path))
        state = {key: _to_cpu(value) for key, value in state.items()}
        if storage_options is not None or (target.is_dir() and not is_replaceable(target)):
            super().save_checkpoint(target, state, storage_options, filter)
            return
        if self.async_save:
            self.finish_save()
            partial = atomic_dir.prepare(target, self.local_rank, self.barrier)
            with sharded_saves() as states:
                super().save_checkpoint(partial, state, None, filter)
            self.barrier()
            self._write_shards(states[0], partial, target)
            return
        with self._replacing(target) as partial, gathering_without_cuda():
            super().save_checkpoint(partial, state, None, filter)

    def load_checkpoint(
        self, path: "_PATH", state: Any | None = None, strict: bool = True, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the states of the given objects, and return the rest of the checkpoint.

        Args:
            path: A full or a sharded checkpoint, saved on any number of devices.
            state: The sharded module, or objects by name.
            strict: Whether the keys must match.
            weights_only: As in `torch.load`.

        Raises:
            ValueError: It is a checkpoint of another strategy.
        """
        objects = state if isinstance(state, dict) else {}
        modules = {name: value for name, value in objects.items() if isinstance(value, torch.nn.Module)}
        self.finish_save()
        return self._load(super().load_checkpoint, path, weights_only, modules, state, strict)


@contextmanager
def _extra_states_of(path: Path, modules: dict[str, Any], options: dict[str, Any]) -> Iterator[None]:
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
                stack.enter_context(resized_extra_states(module, sizes))
            yield
            return
        checkpoint = torch.load(path, mmap=True, map_location="cpu", **options) if modules else {}
        for name, module in modules.items():
            # The Trainer's key of one file and that of shards differ.
            states = extra_states(checkpoint.get(name, checkpoint.get("state_dict", {})))
            stack.enter_context(loading_extra_states(module, states))
        yield


def is_sharded(path: Path) -> bool:
    """Return whether a path is a sharded checkpoint of Lightning's."""
    return path.is_dir() and (path / METADATA).is_file()


def is_replaceable(path: Path) -> bool:
    """Return whether a sharded checkpoint may replace what is at a path: nothing, a file, a checkpoint, no files."""
    return not path.is_dir() or is_sharded(path) or not any(path.iterdir())


def validate_async_save(async_save: bool, *, is_sharded: bool) -> bool:
    """Return `async_save`.

    Raises:
        ValueError: It is set and checkpoints are not sharded.
    """
    if async_save and not is_sharded:
        raise ValueError(
            "`async_save` must be False for full checkpoints, got True: save sharded ones, or use Lightning's "
            "AsyncCheckpointIO"
        )
    return async_save


def _map(function: "Callable[[torch.Tensor], Any]", value: Any) -> Any:
    """Return a copy of nested containers with a function applied to their tensors; other objects stay."""
    if isinstance(value, (torch.Tensor, ShardedTensor)):
        return function(value)
    if type(value) in {list, tuple}:
        return type(value)(_map(function, item) for item in value)
    if isinstance(value, dict):
        return {key: _map(function, item) for key, item in value.items()}
    return value


def _to_cpu(value: Any) -> Any:
    """Return tensors and containers of tensors on the CPU; other objects, such as modules, are returned unchanged."""
    return _map(lambda tensor: tensor.detach().cpu(), value)


def _copy_to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a state in host memory, which training does not change."""

    def copy_tensor(tensor: Any) -> Any:
        # A sharded tensor, which is on the CPU, copies its shards.
        return copy.deepcopy(tensor) if isinstance(tensor, ShardedTensor) else tensor.detach().clone().cpu()

    copied: dict[str, Any] = _map(copy_tensor, state)
    return copied


def _is_deepspeed(path: Path) -> bool:
    return (path / "latest").is_file() or next(path.glob("**/*mp_rank_*"), None) is not None
