"""Atomic replacement of a directory that several processes write together, such as a sharded checkpoint."""

import contextlib
import ctypes
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hpu_core._atomic_write import PREFIX, fsync, save_error

# In bytes: more than a full file system has free.
_PROBE_SIZE: Final = 1 << 20

# Constants of renameat2(2), Linux 3.15 and newer.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextlib.contextmanager
def atomic_dir(path: Path, rank: int, local_rank: int, barrier: Callable[[], None]) -> Iterator[Path]:
    """Yield a temporary directory that replaces `path` once every rank has left the block.

    Every rank must call this function. If a rank fails or is killed, `path` keeps its previous content, and the next
    call for the same path removes the partial one. Hosts that do not share the file system each replace their own
    directory.

    Args:
        path: Directory to replace. Its parent is created if missing.
        rank: Global rank of this process.
        local_rank: Rank of this process on its host.
        barrier: Function that blocks until all ranks have called it.

    Raises:
        OSError: The block failed because the file system takes no more data.
    """
    partial = prepare(path, local_rank, barrier)
    try:
        yield partial
    except RuntimeError as error:
        _raise_if_unwritable(partial, path, error)
        raise
    barrier()
    # Rank 0's host commits first. If another host's partial directory is missing afterwards, it is the same one.
    if rank == 0:
        commit(partial, path)
    barrier()
    if rank != 0 and local_rank == 0:
        with contextlib.suppress(FileNotFoundError):
            commit(partial, path)
    barrier()


def _raise_if_unwritable(partial: Path, path: Path, error: RuntimeError) -> None:
    """Raise the operating system's error if the directory takes no data; torch's own error does not tell it."""
    folder = partial if partial.is_dir() else partial.parent
    probe = folder / f"{PREFIX}{os.getpid()}.probe"
    try:
        try:
            probe.write_bytes(bytes(_PROBE_SIZE))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as cause:
        raise save_error(cause, path) from error


def prepare(path: Path, local_rank: int, barrier: Callable[[], None]) -> Path:
    """Return a path next to `path` that does not exist, for a directory that `commit` moves there; see `atomic_dir`."""
    partial = _sibling(path, "partial")
    if local_rank == 0:
        partial.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        _remove(_sibling(path, "ready"))
    barrier()
    return partial


def resolve(path: "str | os.PathLike[str]") -> Path:
    """Return the path, or its previous content if a process was killed between the two renames of a replacement."""
    path = Path(path)
    previous = _sibling(path, "previous")
    return previous if not os.path.lexists(path) and previous.exists() else path


def commit(partial: Path, path: Path) -> None:
    """Flush a complete directory or file to disk, move it to `path` and remove the previous content.

    Raises:
        FileNotFoundError: Another host has already moved the directory; `path` is untouched.
    """
    ready, previous = _sibling(path, "ready"), _sibling(path, "previous")
    # Renamed first, because a network file system may still list a directory that another host has moved.
    partial.rename(ready)
    _fsync_tree(ready)
    if not os.path.lexists(path):
        ready.rename(path)
    elif _exchange(ready, path):
        previous = ready
    else:
        # Some file systems, such as NFS, cannot exchange two names. `path` is missing between the two renames.
        _remove(previous)
        path.rename(previous)
        ready.rename(path)
    fsync(path.parent)
    _remove(previous)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names atomically and return whether the system supports it."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        # The C library is too old to export it.
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def _sibling(path: Path, role: str) -> Path:
    """Return a path in the same directory that depends on the target's name and the role only."""
    name = hashlib.sha256(path.name.encode()).hexdigest()[:16]
    return path.parent / f"{PREFIX}{name}.{role}"


def _remove(path: Path) -> None:
    """Remove a directory, a file or a symbolic link, without following the link."""
    while path.is_dir() and not path.is_symlink():
        # Hosts that share the file system remove the directory at the same time.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _fsync_tree(path: Path) -> None:
    if path.is_file():
        fsync(path)
    for parent, _, files in os.walk(path):
        for name in files:
            fsync(Path(parent, name))
        fsync(Path(parent))
