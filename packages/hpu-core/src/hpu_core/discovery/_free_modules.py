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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hpu_core.discovery import _hl_smi
from hpu_core.discovery._device import parse_int, printable
from hpu_core.discovery._holders import Holders

FOLDER_VARIABLE: Final = "HPU_MODULE_LOCKS"

# Not that of TMPDIR, which differs between jobs.
_FOLDER: Final = "/tmp/hpu-module-locks"  # noqa: S108 - its files have no content that matters, and links are refused.
_MAX_OWNER: Final = 200
_QUERY: Final = ("-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits")
# An idle Gaudi 2 reports 768 of 98304 MiB. The bridge's pool takes all memory by default
# (PT_HPU_POOL_MEM_ACQUIRE_PERC=100), so a device in use is expected to report far more.
_USED_SHARE: Final = 0.1

# Descriptors of the modules that this process has locked. They are closed when it exits.
_locked: dict[Path, int] = {}


def take(
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


def folder(*, simulated: bool, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the locks: that of HPU_MODULE_LOCKS, else one of this machine or of the simulated machine.

    Args:
        simulated: Whether the devices are simulated.
        environ: The environment.
    """
    path = environ.get(FOLDER_VARIABLE) or _FOLDER
    if not simulated:
        return Path(path)
    # The variables by which processes share a simulated machine.
    machine = f"{os.getuid()}\n{environ.get('HPU_SIM_RUNTIME_DIR', '')}\n{environ.get('HPU_SIM_MACHINE', '')}"
    return Path(f"{path}-simulated-{hashlib.sha256(machine.encode()).hexdigest()[:16]}")


def used_modules(runner: Callable[[tuple[str, ...]], str] = _hl_smi.run) -> frozenset[int]:
    """Return the modules whose memory is in use according to `hl-smi`; none if it does not work.

    Args:
        runner: Runs hl-smi.
    """
    try:
        lines = runner(_QUERY).splitlines()
    except _hl_smi.HlSmiError:
        return frozenset()
    modules = set()
    for line in lines:
        numbers = [parse_int(text) for text in line.split(",")]
        match numbers:
            case [int(module), int(used), int(total)] if used > total * _USED_SHARE:
                modules.add(module)
    return frozenset(modules)


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
    message = f"cannot lock modules in a path that {reason}: set {FOLDER_VARIABLE} to a folder for all jobs"
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
