"""Atomic replacement of a local file: the file is complete or unchanged whenever the process or the machine stops.

It is written to a temporary file in the same folder, which is renamed once it is on disk. The writer locks that file,
and the kernel releases the lock when the process exits. The next writer in the folder removes files without a lock.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

PREFIX: Final = ".hpu-core-"
"""Start of the names of temporary files and directories, which Lightning must not take for checkpoints."""

PARTIAL: Final = ".partial"
"""End of the names of those that are incomplete."""

# In bytes. Tensors of a checkpoint are larger than the buffer and bypass it; a full disk has no room for a probe.
_BUFFER_SIZE: Final = 1 << 20
_PROBE_SIZE: Final = 1 << 20
# Data may be lost. Other errors of `fsync`, such as EINVAL, mean that the file system has no such operation.
_LOSSES: Final = {errno.EIO, errno.ENOSPC, errno.EDQUOT}


def flush(path: Path) -> None:
    """Flush a file or directory to disk, as far as its file system has this operation.

    Raises:
        OSError: The disk is full, or has failed.
    """
    with _without_refusals():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def save_errors(path: Path, folder: Path) -> Iterator[None]:
    """Raise an error about the checkpoint if one of the operating system is the body's exception, or its cause.

    Args:
        path: The checkpoint.
        folder: Where it is written. It takes no data if torch's writers, which replace the error, have failed on it.

    Raises:
        OSError: Of the errno's subclass, such as PermissionError.
    """
    try:
        yield
    except BaseException as error:
        cause: BaseException | None = error
        # torch.distributed.checkpoint's is no Exception.
        if isinstance(error, RuntimeError) or type(error).__name__ == "CheckpointException":
            cause = _refusal(folder)
        if not isinstance(cause, OSError):
            raise
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        message = f"cannot save the checkpoint, the old one is unchanged: {reason}"
        raise OSError(cause.errno or errno.EIO, message, str(path)) from error


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends, and is discarded if the block raises.

    It gets the mode that `open` would give a new one. A symlink at `path` is replaced, not followed, because Lightning
    links `last.ckpt` to another checkpoint. A path that is neither a file nor a folder, such as a pipe or /dev/null, is
    written to directly.

    Yields:
        The file to write to.

    Raises:
        OSError: Writing failed, for example because the disk is full. The old file is unchanged.
    """
    with contextlib.ExitStack() as cleanup, save_errors(path, path.parent):
        if path.exists() and not path.is_file():
            # `open` rejects a folder, such as a sharded checkpoint.
            with path.open("wb", buffering=_BUFFER_SIZE) as file:
                yield file
            return
        remove_stale_files(path.parent)
        temporary, descriptor = _create_temporary(path.parent)
        cleanup.callback(temporary.unlink, missing_ok=True)
        with os.fdopen(descriptor, "wb", buffering=_BUFFER_SIZE) as file:
            yield file
            file.flush()
            with _without_refusals():
                os.fsync(descriptor)
            # A file system without `fsync` reports a full disk when a descriptor is closed.
            os.close(os.dup(descriptor))
            temporary.replace(path)
        # A power failure could undo the rename.
        flush(path.parent)


def lock(descriptor: int, *, wait: bool) -> bool | None:
    """Lock an open file or folder until its process exits, and return whether this is done.

    It is not if another process has the lock and `wait` is False. None means that the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        return False if error.errno == errno.EWOULDBLOCK else None
    return True


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[bool | None]:
    """Wait until no other process has locked an open file or folder, and keep the lock until the block ends.

    Yields:
        True, or None if the file system has no locks.
    """
    try:
        yield lock(descriptor, wait=True)
    finally:
        os.close(descriptor)


def remove_stale_files(folder: Path) -> None:
    """Remove temporary files of processes that have exited."""
    for stale in list(folder.glob(f"{PREFIX}*{PARTIAL}")):
        # Suppressed: the file is deleted, a folder, or belongs to another user.
        with contextlib.suppress(OSError), stale.open("rb+") as file:
            if lock(file.fileno(), wait=False):
                stale.unlink()


def _refusal(folder: Path) -> OSError | None:
    """Return the error with which a folder takes no more data, None if it takes some."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_SIZE))
    except OSError as error:
        return error
    return None


@contextlib.contextmanager
def _without_refusals() -> Iterator[None]:
    """Ignore errors of file systems that have no `fsync`."""
    try:
        yield
    except OSError as error:
        if error.errno in _LOSSES:
            raise


def _create_temporary(folder: Path) -> tuple[Path, int]:
    """Create and lock a temporary file; return its path and descriptor."""
    while True:
        temporary = folder / f"{PREFIX}{secrets.token_hex(8)}{PARTIAL}"
        # The umask applies to 0o666, as with `open`.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        # On network file systems without locks, stale files stay.
        lock(descriptor, wait=True)
        # Between these two calls another writer may have removed the file as stale.
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)
