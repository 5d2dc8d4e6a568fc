"""The checkpoint at a path or URL, whatever has saved it."""

import contextlib
import posixpath
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from hpu_core.checkpoints import folders
from hpu_export import _dcp, _safetensors, _torch_file, _zero
from hpu_export._lazy_tensor import Checkpoint
from hpu_export.options import ExportOptions

__all__ = ["open_checkpoint"]

_DCP: Final = "shards of torch.distributed.checkpoint"
_ZERO: Final = "DeepSpeed's files"
_SAFETENSORS: Final = "safetensors"
_TORCH_FILE: Final = "a file of torch.save"
# How folders are recognized, by the names of their entries.
_FOLDERS: Final[dict[str, Callable[[str], bool]]] = {
    _DCP: _dcp.is_part,
    _ZERO: _zero.is_part,
    _SAFETENSORS: _safetensors.is_part,
}


@contextlib.contextmanager
def open_checkpoint(source: str, options: ExportOptions) -> Iterator[Checkpoint]:
    """Open a checkpoint, whose tensors can be read until the block ends.

    Args:
        source: Path of a file or folder, or a URL that fsspec knows. Shards of torch.distributed.checkpoint are read
            from where they are; other remote checkpoints are copied to this machine's folder for temporary files first.
        options: What to read.

    Raises:
        FileNotFoundError: There is nothing at the path.
        ValueError: It is not one whole checkpoint.
        pickle.UnpicklingError: `weights_only` refuses its content.
    """
    fs, path = url_to_fs(source)
    if isinstance(fs, LocalFileSystem):
        # The end of a save that was killed.
        folders.take_up(Path(path).resolve())
    if not fs.exists(path):
        raise FileNotFoundError(f"the checkpoint must exist, got {source!r}")
    is_folder = fs.isdir(path)
    if is_folder:
        kind = _kind_of_folder(fs, path, source)
    else:
        kind = _SAFETENSORS if _safetensors.is_part(path) else _TORCH_FILE
    with contextlib.ExitStack() as stack:
        if kind == _DCP:
            yield _dcp.open_folder(fs, path, key=options.key, weights_only=options.weights_only)
            return
        local = Path(path)
        if not isinstance(fs, LocalFileSystem):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hpu-export-"))
            local = Path(folder, posixpath.basename(path.rstrip("/")))
            fs.get(path, str(local), recursive=is_folder)
        if kind == _ZERO:
            yield _zero.open_folder(local, tag=options.tag, weights_only=options.weights_only)
        elif kind == _SAFETENSORS:
            yield _safetensors.open_files(local)
        else:
            yield _torch_file.open_file(
                local, weights=options.weights, key=options.key, weights_only=options.weights_only
            )


def _kind_of_folder(fs: AbstractFileSystem, path: str, source: str) -> str:
    names = [posixpath.basename(entry.rstrip("/")) for entry in fs.ls(path, detail=False)]
    found = [kind for kind, is_part in _FOLDERS.items() if any(map(is_part, names))]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(
            f"the folder must have one checkpoint, got {source!r} with {' and '.join(found)}: move one of them away"
        )
    files = sorted(name for name in names if name.endswith(tuple(_torch_file.SUFFIXES)))
    if files:
        raise ValueError(
            f"the source must be one checkpoint, got the folder {source!r} with {', '.join(map(repr, files[:3]))}: "
            "name the file"
        )
    raise ValueError(
        f"the folder must have shards of torch.distributed.checkpoint (.metadata), DeepSpeed's files (latest) or "
        f"safetensors, got {source!r} without them"
    )
