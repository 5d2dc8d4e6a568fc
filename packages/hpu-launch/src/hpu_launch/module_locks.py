"""Choice of free modules on machines that do not isolate devices, such as a SLURM cluster without Gres for them.

A module is free if no visible process holds its device, `hl-smi` reports its memory as unused, and no other process has
locked it here. The lock is a lock on a file, which the kernel releases when the process exits, however it exits. It
only keeps modules apart that were all chosen by this function.
"""

import errno
import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hpu_core import discovery
from hpu_core.discovery import Holders, printable

__all__ = ["free_modules"]

_FOLDER_VARIABLE: Final = "HPU_MODULE_LOCKS"

# Not that of TMPDIR, which differs between jobs.
_DEFAULT_FOLDER: Final = "/tmp/hpu-module-locks"  # noqa: S108 - its files have no content that matters, and links are refused.
_MAX_OWNER: Final = 200

# Descriptors of the modules that this process has locked. They are closed when it exits.
_locked: dict[Path, int] = {}


def free_modules(n: int) -> tuple[int, ...]:
    """Return the module ids of `n` devices that no process holds, and keep them for this process until it exits.

    For machines that do not isolate devices, such as those of a SLURM cluster: a job's launching process calls it once
    and sets HABANA_VISIBLE_MODULES to the result. It sets nothing itself and opens no device. A module that another
    process got from this function stays that process's own, even before it opens the device; the locks are in
    /tmp/hpu-module-locks, or in the folder of HPU_MODULE_LOCKS, which all jobs of a machine have to share.

    Without root the open files of other users' processes cannot be read. Their devices are recognized by the memory
    that `hl-smi` reports as used. On the simulator, only the locks are compared.

    Args:
        n: Number of modules.

    Returns:
        Module ids, ascending or in the order of HABANA_VISIBLE_MODULES, which limits the choice.

    Raises:
        TypeError: `n` is not an int.
        ValueError: `n` is less than 1.
        NoHPUError: No device can be used.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
        RuntimeError: Fewer than `n` are free. The message names the processes that hold the others, where it can.
        OSError: The folder of the locks cannot be used.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"`n` must be a positive int, got {n!r}")
    if n < 1:
        raise ValueError(f"`n` must be a positive int, got {n!r}")
    # Raises NoHPUError with the result of each source.
    discovery.auto_device_count()
    devices = discovery.devices()
    simulated = any(device.simulated for device in devices)
    return _take(
        n,
        discovery.usable_modules(devices),
        # Processes of this machine do not hold simulated devices by their nodes.
        Holders() if simulated else discovery.find_holders(),
        used=frozenset() if simulated else discovery.used_modules(),
        folder=_folder(simulated=simulated),
    )


def _take(
    number: int, modules: Sequence[int], holders: Holders, *, used: frozenset[int] = frozenset(), folder: Path
) -> tuple[int, ...]:
    """Lock free modules until this process exits, and return them.

    Args:
        number: How many to take, at least 1.
        modules: The modules to choose from, in this order.
        holders: Processes that hold a device.
        used: Modules whose memory is in use.
        folder: Folder of the locks.

    Raises:
        RuntimeError: There are fewer free ones. None stays locked, and the message has the reason for each module.
        OSError: The folder or a file in it cannot be used, or is one that another user could point elsewhere.
    """
    reasons = dict.fromkeys(used, "a process that uses its memory")
    for holder in holders.processes:
        if holder.module_id is not None:
            reasons[holder.module_id] = str(holder)
    taken: list[int] = []
    _create(folder)
    for module in modules:
        if len(taken) == number:
            break
        if module in reasons:
            continue
        owner = _lock(folder / f"module-{module}")
        if owner is None:
            taken.append(module)
        else:
            reasons[module] = owner
    if len(taken) < number:
        for module in taken:
            os.close(_locked.pop(folder / f"module-{module}"))
        raise _not_enough(number, len(taken), modules, reasons, holders)
    return tuple(taken)


def _folder(*, simulated: bool, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the locks: that of HPU_MODULE_LOCKS, else one of this or the simulated machine."""
    path = environ.get(_FOLDER_VARIABLE) or _DEFAULT_FOLDER
    if not simulated:
        return Path(path)
    # The variables by which processes share a simulated machine.
    machine = f"{os.getuid()}\n{environ.get('HPU_SIM_RUNTIME_DIR', '')}\n{environ.get('HPU_SIM_MACHINE', '')}"
    return Path(f"{path}-simulated-{hashlib.sha256(machine.encode()).hexdigest()[:16]}")


def _create(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        # In a folder for all, such as /tmp, a link of another user could lead to files of this one.
        if path.is_symlink() and path.lstat().st_uid not in {0, os.geteuid()}:
            raise _unsafe(path, "is a link of another user") from None
        return
    # Every user locks modules here, and the umask would prevent it.
    path.chmod(0o1777)


def _unsafe(path: Path, reason: str) -> PermissionError:
    message = f"cannot lock modules in a path that {reason}: set {_FOLDER_VARIABLE} to a folder for all jobs"
    return PermissionError(errno.EPERM, message, str(path))


def _lock(path: Path) -> str | None:
    """Lock a file, and return None; return its owner if another process, or this one, has locked it."""
    descriptor = _open(path)
    status = os.fstat(descriptor)
    # Writing to a hard link would write to the other file.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise _unsafe(path, "is not a file of its own")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = printable(os.read(descriptor, _MAX_OWNER).decode("utf-8", "replace"))
        os.close(descriptor)
        return owner or "another process"
    os.truncate(descriptor, 0)
    os.write(descriptor, f"pid {os.getpid()} ({' '.join(sys.argv)[:_MAX_OWNER]})".encode("utf-8", "replace"))
    _locked[path] = descriptor
    return None


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Without O_CREAT, which the kernel refuses for another user's file in a folder for all.
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)
    return descriptor


def _not_enough(
    number: int, free: int, modules: Sequence[int], reasons: Mapping[int, str], holders: Holders
) -> RuntimeError:
    held = ", ".join(f"module {module} by {reasons[module]}" for module in modules if module in reasons)
    hidden = (
        f" Processes of other users that could not be inspected: {holders.unreadable}." if holders.unreadable else ""
    )
    return RuntimeError(
        f"`n` must be at most {free}, the number of free cards, got {number}; held: {held or 'none'}.{hidden} Wait for "
        "them, end processes that are left over, or ask the scheduler for exclusive nodes"
    )
