"""Device locks: one device per process, one process per device.

The lock of a device is an abstract Unix socket, bound under a name of the device and its machine. The kernel releases
it when its holder exits, however it exits, and nothing is left behind.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from typing import TYPE_CHECKING, Final

from hpu_sim.device import machine_id

if TYPE_CHECKING:
    from collections.abc import Mapping

# The bridge's texts, which scripts and people search for.
_FAILED: Final = "Device acquire failed."
NOT_FOUND: Final = f"synStatus=8 [Device not found] {_FAILED}"
# int() raises another error for thousands of digits.
_MAX_DIGITS: Final = 9
ALREADY_ACQUIRED: Final = f"synStatus=20 [Device already acquired] {_FAILED}"


class DeviceLock:
    """Lock of a device, held until the process exits or :meth:`release` is called.

    A forked child shares it: the device is free once both have closed their descriptors.

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

    Raises:
        RuntimeError: With the bridge's ``synStatus=8`` text if the module does not exist, with ``synStatus=20`` if no
            device is free.
    """
    machine = machine_id.current(os.environ)
    named = environment.get("HLS_MODULE_ID")
    if named:
        module_id = _parse_module_id(named, devices)
        lock = _try_lock(machine, module_id)
        if lock is not None:
            return lock
        if "HABANA_VISIBLE_MODULES" in environment or devices < _world_size(environment):
            raise RuntimeError(ALREADY_ACQUIRED)
    for module_id in range(devices):
        lock = _try_lock(machine, module_id)
        if lock is not None:
            return lock
    raise RuntimeError(ALREADY_ACQUIRED)


def _parse_module_id(text: str, devices: int) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) >= devices:
        raise RuntimeError(NOT_FOUND)
    return int(text)


def _world_size(environment: Mapping[str, str]) -> int:
    for variable in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        value = environment.get(variable, "")
        if value.isdecimal() and len(value) <= _MAX_DIGITS:
            return int(value)
    return 1


def _try_lock(machine: str, module_id: int) -> DeviceLock | None:
    # A hash, because the name of a socket has at most 107 bytes.
    name = hashlib.sha256(f"{machine} device {module_id}".encode()).hexdigest()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(f"\0hpu-sim-{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        return DeviceLock(module_id, lock.detach())
