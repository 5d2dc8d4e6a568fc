"""One card per process, one process per card: a lock file stands for each card of the machine.

The system frees a lock when its holder dies, however it dies, so a card is never lost.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNTIME_VARIABLE: Final = "HPU_SIM_RUNTIME_DIR"

# The bridge's own words, which scripts and people search for.
_FAILED: Final = "Device acquire failed."
NOT_FOUND: Final = f"synStatus=8 [Device not found] {_FAILED}"
ALREADY_ACQUIRED: Final = f"synStatus=20 [Device already acquired] {_FAILED}"


def runtime_folder() -> Path:
    """Return the folder of the lock files: ``HPU_SIM_RUNTIME_DIR``, or one per user and machine."""
    override = os.environ.get(RUNTIME_VARIABLE)
    return Path(override) if override else Path(tempfile.gettempdir()) / f"hpu-sim-{os.getuid()}"


class DeviceLock:
    """Holds a card until the process ends or :meth:`release` is called.

    Not a ``filelock.FileLock``: that unlocks when it is collected, and so a forked child would give away its parent's
    card. Closing a descriptor leaves a lock that the parent's descriptor shares.

    Attributes:
        module_id: Number of the card on its machine.
    """

    def __init__(self, module_id: int, descriptor: int) -> None:
        self.module_id = module_id
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the card back; in a forked child, only forget it."""
        os.close(self._descriptor)


def acquire(devices: int, environment: Mapping[str, str]) -> DeviceLock:
    """Take a card in the bridge's order: the module that ``HLS_MODULE_ID`` names, else the first that is free.

    Where the named module is taken, another one serves only if ``HABANA_VISIBLE_MODULES`` is unset and the machine has
    as many cards as the job has ranks.

    Args:
        devices: Cards of the machine.
        environment: Variables of the process.

    Raises:
        RuntimeError: With the bridge's ``synStatus=8`` text if the named module does not exist, ``synStatus=20`` if no
            card is free.
    """
    named = environment.get("HLS_MODULE_ID")
    if named:
        module_id = _module_id(named, devices)
        lock = _try(module_id)
        if lock is not None:
            return lock
        if "HABANA_VISIBLE_MODULES" in environment or devices < _world_size(environment):
            raise RuntimeError(ALREADY_ACQUIRED)
    for module_id in range(devices):
        lock = _try(module_id)
        if lock is not None:
            return lock
    raise RuntimeError(ALREADY_ACQUIRED)


def _module_id(text: str, devices: int) -> int:
    if not text.isdecimal() or int(text) >= devices:
        raise RuntimeError(NOT_FOUND)
    return int(text)


def _world_size(environment: Mapping[str, str]) -> int:
    for variable in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        value = environment.get(variable, "")
        if value.isdecimal():
            return int(value)
    return 1


def _try(module_id: int) -> DeviceLock | None:
    folder = runtime_folder()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"card-{module_id}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return DeviceLock(module_id, descriptor)
