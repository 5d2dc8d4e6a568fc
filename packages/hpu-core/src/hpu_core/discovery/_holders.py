"""Processes that hold a Gaudi device, read from /proc. It opens no device and needs no privileges.

Without root, the open files of other users' processes cannot be read, and neither can those of other containers.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpu_core.discovery import _sysfs
from hpu_core.discovery._device import parse_int, printable

# Control nodes, such as accel_controlD0, can be open many times.
_NODE: Final = re.compile(r"/dev/(?:accel/accel|hl)(0|[1-9][0-9]{0,5})")
_MAX_COMMAND: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Process that has a device node open.

    Attributes:
        pid: Id of the process.
        command: Its command line.
        node: The device node, such as "/dev/accel/accel0".
        module_id: Module id of the device, None if the driver does not report it.
    """

    pid: int
    command: str
    node: str
    module_id: int | None

    def __str__(self) -> str:
        """Return the process as it is named in messages."""
        return f"pid {self.pid} ({self.command})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Processes that hold a device.

    Attributes:
        processes: The processes, by pid; one that has several devices is listed once for each.
        unreadable: Number of processes whose open files cannot be read.
    """

    processes: tuple[Holder, ...] = ()
    unreadable: int = 0


def find_holders(proc: Path = Path("/proc"), classes: Path = Path("/sys/class")) -> Holders:
    """Return the processes that hold a device, without this one."""
    holders: list[Holder] = []
    unreadable = 0
    for pid in _pids(proc):
        if pid == os.getpid():
            continue
        try:
            nodes = open_nodes(proc / str(pid) / "fd")
        except PermissionError:
            # Threads of the kernel have no command line.
            unreadable += bool(_command(proc, pid))
            continue
        except OSError:
            # It has exited.
            continue
        holders += [
            Holder(pid=pid, command=_command(proc, pid) or "exiting", node=node, module_id=_module_id(classes, node))
            for node in sorted(nodes)
        ]
    return Holders(processes=tuple(holders), unreadable=unreadable)


def _pids(proc: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    except OSError:
        return []


def open_nodes(descriptors: Path) -> set[str]:
    """Return the device nodes among the open files of a process, which a folder such as /proc/self/fd links to."""
    nodes = set()
    for descriptor in descriptors.iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            # It was closed meanwhile.
            continue
        if _NODE.fullmatch(target):
            nodes.add(target)
    return nodes


def _command(proc: Path, pid: int) -> str:
    try:
        line = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return printable(line.replace(b"\0", b" ").decode("utf-8", "replace"))[:_MAX_COMMAND]


def _module_id(classes: Path, node: str) -> int | None:
    name = node.rpartition("/")[2]
    folder = classes / ("accel" if name.startswith("accel") else "habanalabs") / name
    return parse_int(_sysfs.read_attribute(folder, "module_id"))
