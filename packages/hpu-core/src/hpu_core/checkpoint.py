"""Checkpoints that load anywhere and are never half written."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpu_core import _cpu_pickle, frameworks
from hpu_core._lightning import TorchCheckpointIO, get_filesystem
from hpu_core._replacing import replacing

if TYPE_CHECKING:
    from lightning.fabric.utilities.types import _PATH


class HPUCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints with all tensors on the CPU and replaces the old file in one step.

    - Tensors wherever they are in the checkpoint go to the CPU; those that share storage (tied weights, views) share
      it in the file too. The checkpoint that is passed in is not changed.
    - A process that is killed while saving leaves the old checkpoint or the new one, never a part of one. Local files
      only; for a remote path it is up to the file system, as with Lightning's own plugin.
    - Checkpoints load on machines without a Gaudi, also those that other plugins saved from one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: "_PATH", storage_options: Any | None = None) -> None:
        """Save a checkpoint.

        Args:
            checkpoint: The state of model and trainer.
            path: A local path, or a URL that fsspec knows. Missing folders are created.
            storage_options: Not supported, as in Lightning's own plugin.

        Raises:
            TypeError: `storage_options` is given.
            OSError: The file cannot be written; what was at `path` is untouched.
        """
        if storage_options is not None:
            raise TypeError(
                f"`storage_options` is not supported by {type(self).__name__}, got {storage_options!r}: leave it out, "
                "or subclass the plugin to say what it should do"
            )
        filesystem = get_filesystem(path)
        # fsspec's own spelling of the path: no "file://", "~" expanded.
        target = filesystem._strip_protocol(str(path))  # noqa: SLF001 - every file system has it; nothing public does it.
        filesystem.makedirs(filesystem._parent(target), exist_ok=True)  # noqa: SLF001 - as above.
        protocol = filesystem.protocol
        if "file" in ((protocol,) if isinstance(protocol, str) else protocol):
            with replacing(Path(target)) as file:
                _cpu_pickle.save(checkpoint, file)
            return
        buffer = io.BytesIO()
        _cpu_pickle.save(checkpoint, buffer)
        # In a transaction the object appears when it is complete, on the file systems that can do so.
        with filesystem.transaction, filesystem.open(target, "wb") as remote:
            remote.write(buffer.getvalue())

    def load_checkpoint(
        self, path: "_PATH", map_location: Any | None = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint.

        Args:
            path: A local path, or a URL that fsspec knows.
            map_location: Where the tensors go, as in `torch.load`: the CPU when not given.
            weights_only: As in `torch.load`. Lightning below 2.6 has no such choice, and None means its own default.

        Returns:
            The checkpoint.

        Raises:
            FileNotFoundError: There is nothing at `path`.
        """
        # Lightning's plugin takes the argument from 2.6 on; below, only None can be honoured.
        options = {} if weights_only is None else {"weights_only": weights_only}
        return super().load_checkpoint(path, map_location=map_location, **options)

    def __repr__(self) -> str:
        return frameworks.describe(self)
