"""Device locks: one device per process, one process per device.

Each device of the machine has a lock file. The kernel releases the lock when its holder exits, however it exits.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNTIME_VARIABLE: Final = "HPU_SIM_RUNTIME_DIR"

# The bridge's texts, which scripts and people search for.
_FAILED: Final = "Device acquire failed."
NOT_FOUND: Final = f"synStatus=8 [Device not found] {_FAILED}"
ALREADY_ACQUIRED: Final = f"synStatus=20 [Device already acquired] {_FAILED}"


def runtime_folder() -> Path:
    """Return the folder of the lock files: ``HPU_SIM_RUNTIME_DIR``, or one per user in the temporary folder."""
    override = os.environ.get(RUNTIME_VARIABLE)
    return Path(override) if override else Path(tempfile.gettempdir()) / f"hpu-sim-{os.getuid()}"


class DeviceLock:
    """Lock of a device, held until the process exits or :meth:`release` is called.

    Unlike ``filelock.FileLock`` it does not unlock when it is garbage collected. In a forked child that would release
    the parent's device, because both share the lock.

    Attributes:
        module_id: Number of the device on its machine.
    """

    def __init__(self, module_id: int, descriptor: int) -> None:
        self.module_id = module_id
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the device; in a forked child, only close the inherited descriptor."""
        os.close(self._descriptor)


def acquire(devices: int, environment: Mapping[str, str]) -> DeviceLock:
    """Acquire a device in the bridge's order: the module of ``HLS_MODULE_ID``, else the first free one.

    If that module is in use, another one is taken only if ``HABANA_VISIBLE_MODULES`` is unset and the machine has at
    least as many devices as the job has ranks.

    Args:
        devices: Number of devices of the machine.
        environment: Environment of the process.

    Raises:
        RuntimeError: With the bridge's ``synStatus=8`` text if the module does not exist, with ``synStatus=20`` if no
            device is free, or if other users can write to the folder of the lock files.
    """
    named = environment.get("HLS_MODULE_ID")
    if named:
        module_id = _parse_module_id(named, devices)
        lock = _try_lock(module_id)
        if lock is not None:
            return lock
        if "HABANA_VISIBLE_MODULES" in environment or devices < _world_size(environment):
            raise RuntimeError(ALREADY_ACQUIRED)
    for module_id in range(devices):
        lock = _try_lock(module_id)
        if lock is not None:
            return lock
    raise RuntimeError(ALREADY_ACQUIRED)


def _parse_module_id(text: str, devices: int) -> int:
    if not text.isdecimal() or int(text) >= devices:
        raise RuntimeError(NOT_FOUND)
    return int(text)


def _world_size(environment: Mapping[str, str]) -> int:
    for variable in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        value = environment.get(variable, "")
        if value.isdecimal():
            return int(value)
    return 1


def _try_lock(module_id: int) -> DeviceLock | None:
    folder = _open_folder()
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(f"device-{module_id}.lock", flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return DeviceLock(module_id, descriptor)


def _open_folder() -> int:
    """Create the folder of the lock files where it is missing, and return a descriptor of it."""
    folder = runtime_folder()
    if os.environ.get(RUNTIME_VARIABLE):
        # Chosen by the user, who may share it with others on purpose.
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
    # The temporary folder is open to everyone, so another user may have created this name first.
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise _folder_error(folder, f"an error ({error.strerror})") from error
    status = os.fstat(descriptor)
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise _folder_error(folder, f"one of user {status.st_uid} with mode {stat.filemode(status.st_mode)}")
    return descriptor


def _folder_error(folder: Path, got: str) -> RuntimeError:
    return RuntimeError(
        f"the folder of device locks {folder} must belong to this user and be writable by nobody else, got {got}; "
        f"remove it or set {RUNTIME_VARIABLE} to another folder"
    )
