"""Checkpoint plugin for HPU: device-independent files, written atomically."""

import inspect
import io
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from hpu_core import _cpu_pickle, frameworks
from hpu_core._lightning import TorchCheckpointIO
from hpu_core.checkpoints.files import atomic_write

_LOADS_WEIGHTS_ONLY: Final = "weights_only" in inspect.signature(TorchCheckpointIO.load_checkpoint).parameters

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import _PATH


class HPUCheckpointIO(TorchCheckpointIO):
    """Checkpoint plugin that saves every tensor as a CPU tensor and replaces the old file atomically.

    - Tensors are converted wherever they are in the checkpoint. Those that share a storage (tied weights, views) share
      it in the file, too. The checkpoint that is passed in does not change.
    - A process that is killed while saving leaves the old file or the new one, never a part. This holds for local
      files; for a remote path it depends on the file system, as with Lightning's own plugin.
    - Checkpoints load on machines without a Gaudi, also those that other plugins saved on one.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: "_PATH", storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Save a checkpoint to a local path, or a URL that fsspec supports; missing folders are created.

        `storage_options` are keyword arguments of the fsspec file system, such as credentials.

        Raises:
            TypeError: `storage_options` is not a mapping.
            OSError: Writing failed. The old checkpoint is unchanged.
        """
        if not isinstance(storage_options, (Mapping, type(None))):
            raise TypeError(
                "`storage_options` must be a mapping with keyword arguments of the fsspec file system, got "
                f"{storage_options!r}"
            )
        # The path is fsspec's: without "file://", with "~" expanded.
        filesystem, target = url_to_fs(str(path), **(storage_options or {}))
        filesystem.makedirs(posixpath.dirname(target), exist_ok=True)
        if isinstance(filesystem, LocalFileSystem):
            with atomic_write(Path(target)) as file:
                _cpu_pickle.save(checkpoint, file)
            return
        buffer = io.BytesIO()
        _cpu_pickle.save(checkpoint, buffer)
        # Many file systems publish an object at the end of a transaction.
        with filesystem.transaction, filesystem.open(target, "wb") as remote:
            remote.write(buffer.getbuffer())

    def load_checkpoint(
        self, path: "_PATH", map_location: Any | None = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint from a local path, or a URL that fsspec supports.

        `map_location` and `weights_only` are as in `torch.load`. If `weights_only` is None, it is Lightning's default,
        or True for an HTTP URL; Lightning before 2.6 supports None only.

        Raises:
            FileNotFoundError: There is no file at `path`.
            IsADirectoryError: `path` is a folder of sharded files.
            RuntimeError: The file is damaged, or is not a checkpoint.
            pickle.UnpicklingError: With `weights_only`, the file has objects other than weights.
        """
        # Lightning unpickles what an HTTP server sends.
        if weights_only is None and str(path).startswith("http") and _LOADS_WEIGHTS_ONLY:
            weights_only = True
        options = {} if weights_only is None else {"weights_only": weights_only}
        try:
            return super().load_checkpoint(path, map_location=map_location, **options)
        except IsADirectoryError as error:
            is_deepspeed = next(Path(path).glob("**/*mp_rank_*"), None) is not None
            strategy = "`strategy='hpu_deepspeed'`" if is_deepspeed else "`strategy='hpu_fsdp'` or FSDP2's"
            message = (
                "cannot load the checkpoint, which is a folder of sharded files: pass the strategy that saved it, "
                f"{strategy}, or export the weights to one file with `hpu-export`"
            )
            raise IsADirectoryError(error.errno, message, str(path)) from error
        # What torch raises for damaged files, without their path.
        except (EOFError, LookupError, RuntimeError, ValueError) as error:
            reason = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}".rstrip(": ")
            raise RuntimeError(f"cannot load the checkpoint {str(path)!r}, which may be damaged: {reason}") from error

    def __repr__(self) -> str:
        return frameworks.describe(self)
