"""The checkpoint at a path or URL, whatever has saved it."""

import contextlib
import posixpath
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from hpu_export import _dcp, _safetensors, _torch_file, _zero
from hpu_export._lazy_tensor import Checkpoint

__all__ = ["LoadOptions", "open_checkpoint"]


@dataclass(frozen=True)
class LoadOptions:
    """What to read of a checkpoint, as in `ExportOptions`.

    Attributes:
        weights: "averaged" or "current".
        key: Key of the weights.
        tag: Tag of a DeepSpeed checkpoint.
        weights_only: As in `torch.load`.
    """

    weights: str = "averaged"
    key: str | None = None
    tag: str | None = None
    weights_only: bool = True


def _open_dcp(fs: AbstractFileSystem, path: str, options: LoadOptions) -> Checkpoint:
    return _dcp.open_folder(fs, path, key=options.key, weights_only=options.weights_only)


def _open_zero(_: AbstractFileSystem, path: str, options: LoadOptions) -> Checkpoint:
    return _zero.open_folder(Path(path), tag=options.tag, weights_only=options.weights_only)


def _open_safetensors(_: AbstractFileSystem, path: str, options: LoadOptions) -> Checkpoint:
    del options
    return _safetensors.open_files(Path(path))


def _open_torch_file(_: AbstractFileSystem, path: str, options: LoadOptions) -> Checkpoint:
    return _torch_file.open_file(
        Path(path), weights=options.weights, key=options.key, weights_only=options.weights_only
    )


# How folders are recognized, by the names of their entries.
_KINDS: Final[dict[str, tuple[Callable[[str], bool], Callable[[AbstractFileSystem, str, LoadOptions], Checkpoint]]]] = {
    "shards of torch.distributed.checkpoint": (_dcp.is_part, _open_dcp),
    "DeepSpeed's files": (_zero.is_part, _open_zero),
    "safetensors": (_safetensors.is_part, _open_safetensors),
}


@contextlib.contextmanager
def open_checkpoint(source: str, options: LoadOptions) -> Iterator[Checkpoint]:
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
    if not fs.exists(path):
        raise FileNotFoundError(f"the checkpoint must exist, got {source!r}")
    opener = _open_torch_file if path.endswith(tuple(_torch_file.SUFFIXES)) else _open_safetensors
    if fs.isdir(path):
        opener = _opener_of_folder(fs, path, source)
    elif opener is _open_safetensors and not _safetensors.is_part(path):
        opener = _open_torch_file
    with contextlib.ExitStack() as stack:
        if opener is not _open_dcp and not isinstance(fs, LocalFileSystem):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hpu-export-"))
            local = posixpath.join(folder, posixpath.basename(path.rstrip("/")))
            fs.get(path, local, recursive=fs.isdir(path))
            fs, path = LocalFileSystem(), local
        yield opener(fs, path, options)


def _opener_of_folder(fs: AbstractFileSystem, path: str, source: str) -> Any:
    names = [posixpath.basename(entry.rstrip("/")) for entry in fs.ls(path, detail=False)]
    found = {kind: opener for kind, (is_part, opener) in _KINDS.items() if any(map(is_part, names))}
    if len(found) == 1:
        return next(iter(found.values()))
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
