"""Writing a folder, together with other processes, so that it is there whole or not at all, whenever they die."""

import contextlib
import ctypes
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# No name that Lightning could take for a checkpoint when it looks for the last one.
_PREFIX: Final = ".hpu-deepspeed-"

# Of renameat2(2), Linux 3.15 and newer.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextlib.contextmanager
def replacing(path: Path, rank: int, local_rank: int, barrier: Callable[[], None]) -> Iterator[Path]:
    """Have a folder written that takes the place of `path` when all ranks have left the block.

    All ranks call this. A rank that fails or is killed leaves what was at `path`; what it has written is removed when
    the same checkpoint is next saved. On machines that do not share the folder, each puts its own in place.

    Args:
        path: The target; its folder is made if it is missing.
        rank: This process among all.
        local_rank: This process among those of its machine.
        barrier: Waits for all ranks.

    Yields:
        The folder to write to, empty.
    """
    partial = _neighbour(path, "partial")
    if local_rank == 0:
        partial.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        _remove(_neighbour(path, "ready"))
    barrier()
    yield partial
    barrier()
    # The first rank's machine goes first. Where that has put the others' folder in place as well, it is shared.
    if rank == 0:
        _put(partial, path)
    barrier()
    if rank != 0 and local_rank == 0:
        with contextlib.suppress(FileNotFoundError):
            _put(partial, path)
    barrier()


def present(given: "str | os.PathLike[str]") -> Path:
    """Return a path, or what it had been before a process was killed between the two steps of replacing it."""
    path = Path(given)
    before = _neighbour(path, "before")
    return before if not os.path.lexists(path) and before.exists() else path


def _put(partial: Path, path: Path) -> None:
    """Bring a folder to disk, put it at `path`, and remove what was there.

    Raises:
        FileNotFoundError: Another machine has put it there, and `path` has not been touched.
    """
    ready, before = _neighbour(path, "ready"), _neighbour(path, "before")
    # Before anything else, because a network file system may show a folder that another machine has moved away.
    partial.rename(ready)
    _sync(ready)
    if not os.path.lexists(path):
        ready.rename(path)
    elif _exchange(ready, path):
        before = ready
    else:
        # A file system that cannot exchange two names, as NFS: in between, there is nothing at `path`.
        _remove(before)
        path.rename(before)
        ready.rename(path)
    _sync_one(path.parent)
    _remove(before)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; return whether the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        # An older C library.
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def _neighbour(path: Path, role: str) -> Path:
    """Return a path in the same folder, which the same target gets each time."""
    name = hashlib.sha256(path.name.encode()).hexdigest()[:16]
    return path.parent / f"{_PREFIX}{name}.{role}"


def _remove(path: Path) -> None:
    """Remove a folder, a file or a link, not what a link points to."""
    while path.is_dir() and not path.is_symlink():
        # Machines that share the folder remove it at the same time, and each may find a part of it gone.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    for place, _, files in os.walk(folder):
        for name in files:
            _sync_one(Path(place, name))
        _sync_one(Path(place))


def _sync_one(path: Path) -> None:
    # Some network file systems refuse this for folders.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
