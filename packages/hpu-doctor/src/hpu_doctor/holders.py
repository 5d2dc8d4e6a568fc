"""Processes that hold a card, read from /proc. It opens no card.

Without root, the open files of other users' processes cannot be read, and neither can those of other containers.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpu_core.discovery import printable

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
        module_id: Module id of the card, None if the driver does not report it.
    """

    pid: int
    command: str
    node: str
    module_id: int | None


def find_holders(proc: Path = Path("/proc"), classes: Path = Path("/sys/class")) -> tuple[tuple[Holder, ...], int]:
    """Return the processes that hold a card, by pid, and the number of processes whose files cannot be read.

    A process that has several cards is listed once for each, and this process is left out.
    """
    holders: list[Holder] = []
    hidden = 0
    for pid in _pids(proc):
        try:
            nodes = _open_nodes(proc / str(pid) / "fd")
        except PermissionError:
            # Threads of the kernel have no command line.
            hidden += bool(_command(proc, pid))
            continue
        except OSError:
            # It has exited.
            continue
        holders += [
            Holder(pid=pid, command=_command(proc, pid) or "exiting", node=node, module_id=_module_id(classes, node))
            for node in sorted(nodes)
        ]
    return tuple(holders), hidden


def _pids(proc: Path) -> list[int]:
    try:
        found = {int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()}
    except OSError:
        return []
    return sorted(found - {os.getpid()})


def _open_nodes(descriptors: Path) -> set[str]:
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
    """Return the module id from sysfs, whose class `habanalabs` has it beside the folder `device`."""
    name = Path(node).name
    folder = classes / ("accel" if name.startswith("accel") else "habanalabs") / name
    files = (folder / "device" / "module_id", folder / "module_id")
    text = next((file.read_text(encoding="utf-8").strip() for file in files if file.exists()), "")
    return int(text) if text.isascii() and text.isdecimal() else None
