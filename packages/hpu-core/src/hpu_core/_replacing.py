"""Writing a local file so that it is there whole or not at all, whenever the process or the machine dies.

The new content goes to a temporary file in the same folder and takes the target's name when it is complete and on
disk. The writer holds a lock on its temporary file, which the kernel drops when the process ends in any way; so the
next writer in the folder can tell a leftover of a killed process from a file that is being written, and removes it.
"""

import contextlib
import errno
import fcntl
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_PREFIX = ".hpu-core-"
_SUFFIX = ".partial"

# Bytes collected before a write. The tensors of a checkpoint are larger and pass through unbuffered.
_BUFFER = 1 << 20


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends, and vanishes when it raises.

    A new file gets the mode that `open` would give it, and a replaced one passes its mode on. A symlink at `path` is
    replaced, not followed: Lightning links `last.ckpt` to another checkpoint, which must not be overwritten. What is
    neither a file nor a folder, such as a pipe or /dev/null, is written to directly.

    Args:
        path: The target, in a folder that exists.

    Yields:
        The file to write to.

    Raises:
        OSError: The file could not be written, for example because the disk is full; what was at `path` is untouched.
    """
    failures: list[OSError] = []
    with _explained(path, failures):
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            # A folder, such as a sharded checkpoint, is refused by the kernel here.
            with _stream(os.open(path, os.O_WRONLY), failures) as stream:
                yield stream
            return
        _remove_leftovers(path.parent)
        temporary, descriptor = _create(path.parent)
        try:
            with _stream(descriptor, failures) as stream:
                yield stream
                stream.flush()
                if mode is not None:
                    os.fchmod(descriptor, stat.S_IMODE(mode))
                os.fsync(descriptor)
                temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


class _RawFile(io.FileIO):
    """A file that keeps the operating system's errors.

    torch's writer covers up the error of a write by its own complaint about the incomplete archive.
    """

    def __init__(self, descriptor: int, failures: list[OSError]) -> None:
        super().__init__(descriptor, "wb")
        self._failures = failures

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._failures.append(error)
            raise


@contextlib.contextmanager
def _stream(descriptor: int, failures: list[OSError]) -> Iterator[BinaryIO]:
    """Open a buffered file over `descriptor`; flushed when the body ends, only closed when it raises."""
    # Closing the file underneath: the buffer would try to write its rest, which after an error has no use.
    with contextlib.closing(_RawFile(descriptor, failures)) as raw:
        stream = io.BufferedWriter(raw, _BUFFER)
        yield stream
        stream.flush()


@contextlib.contextmanager
def _explained(path: Path, failures: list[OSError]) -> Iterator[None]:
    """Raise the operating system's error, if one is at the root of what the body raised, saying what it means."""
    try:
        yield
    except Exception as error:
        cause = failures[0] if failures else error
        if not isinstance(cause, OSError):
            raise
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        message = f"cannot save the checkpoint, and what was there is untouched: {reason}"
        # Given a number, OSError makes the subclass that fits it, such as PermissionError.
        raise OSError(cause.errno or errno.EIO, message, str(path)) from cause


def _mode(path: Path) -> int | None:
    """Return the mode of what is at `path`, symlinks followed, or None if there is nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _create(folder: Path) -> tuple[Path, int]:
    """Create and lock a new temporary file; return its path and descriptor."""
    while True:
        temporary = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        # 0o666 without the umask's bits, which is what `open` gives a new file.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        # Some network file systems have no locks; there leftovers stay, and nothing else changes.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Between the two calls, another writer may have taken the file for a leftover.
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that have ended."""
    for leftover in list(folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        # Gone meanwhile, of another user, or locked by its living writer: not ours to remove.
        with contextlib.suppress(OSError), leftover.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def _sync_folder(folder: Path) -> None:
    """Bring the new name to disk, without which a power cut could undo the replacement."""
    # Some network file systems refuse this; the file has its name by now, so there is nothing to fail about.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
