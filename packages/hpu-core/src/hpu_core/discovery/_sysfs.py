"""Devices that the kernel driver lists in sysfs. It reads files only and needs no privileges.

Source: the sysfs code and ABI document of the habanalabs driver in the Linux kernel. Only Intel's own build of the
driver has `driver_ver` and supports Gaudi 3.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from hpu_core.discovery import _generation
from hpu_core.discovery._device import (
    OPERATIONAL,
    HPUDevice,
    SourceResult,
    parse_int,
    parse_pci_address,
    parse_status,
    printable,
)

NO_NODE: Final = "No device node"

_HEX = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.IGNORECASE)

# Does not match the control nodes `accel_controlD3` and `hl_controlD3`.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


class _Layout(NamedTuple):
    """Paths of a device class: device 3 is `folder`/`prefix`3 and has the node /dev/`nodes`/`prefix`3."""

    folder: str
    prefix: str
    nodes: str


# The class `accel` is shared with other vendors; older drivers have a class of their own.
_LAYOUTS = (_Layout("accel", "accel", "accel"), _Layout("habanalabs", "hl", ""))


def find(classes: Path = Path("/sys/class"), nodes: Path = Path("/dev")) -> SourceResult:
    """List the devices in sysfs.

    A device without its node gets the status "No device node": in a container, sysfs lists every device of the host,
    but only the nodes of devices that were given to the container exist.
    """
    location = " and ".join(f"{classes}/{layout.folder}/{layout.prefix}*/device" for layout in _LAYOUTS)
    messages = []
    for layout in _LAYOUTS:
        devices, message = _read_class(classes / layout.folder, layout, nodes / layout.nodes)
        if devices:
            return SourceResult(source="sysfs", location=location, message=message, devices=devices)
        messages.append(f"{layout.folder}: {message}")
    return SourceResult(source="sysfs", location=location, message="; ".join(messages))


def _read_class(folder: Path, layout: _Layout, nodes: Path) -> tuple[tuple[HPUDevice, ...], str]:
    """Return the devices of a device class, and a message about its folder."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return (), "no such folder"
    except OSError as error:
        return (), f"cannot be read ({error.strerror or type(error).__name__})"
    names = [name for name in names if name.startswith(layout.prefix) and _NUMBER.fullmatch(name[len(layout.prefix) :])]
    # By number: accel2 before accel10.
    entries = [folder / name for name in sorted(names, key=lambda name: int(name[len(layout.prefix) :]))]
    habana = [entry for entry in entries if _read_hex(entry / "device" / "vendor") == _generation.PCI_VENDOR]
    devices = tuple(_read_device(entry, index, nodes) for index, entry in enumerate(habana))
    return devices, f"{len(habana)} of {len(entries)} devices have PCI vendor {_generation.PCI_VENDOR:#x}"


def _read_device(entry: Path, index: int, nodes: Path) -> HPUDevice:
    status = parse_status(read_attribute(entry, "status"))
    if status == OPERATIONAL and not (nodes / entry.name).exists():
        status = NO_NODE
    return HPUDevice(
        index=index,
        module_id=parse_int(read_attribute(entry, "module_id")),
        # In a real sysfs, the address is also the name that the link leads to. Path.resolve raises for a loop of links.
        pci_address=parse_pci_address(read_attribute(entry, "pci_addr"))
        or parse_pci_address(Path(os.path.realpath(entry / "device")).name),
        generation=_generation.from_device_type(read_attribute(entry, "device_type")),
        status=status,
        driver_version=printable(read_attribute(entry, "driver_ver")) or None,
        source="sysfs",
    )


def read_attribute(entry: Path, name: str) -> str:
    """Return an attribute of a device: below `device`, or next to it in the class `habanalabs`; "" if unreadable."""
    return _read_line(entry / "device" / name) or _read_line(entry / name)


def _read_hex(path: Path) -> int | None:
    text = _read_line(path)
    return int(text, 16) if _HEX.fullmatch(text) else None


def _read_line(path: Path) -> str:
    """Return the text of a small file, "" if it cannot be read: some attributes fail during a reset."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
