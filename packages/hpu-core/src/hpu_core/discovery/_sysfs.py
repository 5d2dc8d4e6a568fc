"""Cards as the kernel's driver shows them in sysfs. Reads files, starts nothing, needs no rights.

Source: the sysfs code and ABI document of the habanalabs driver in the Linux kernel; `driver_ver` exists in Intel's own
build of the driver only, and so does Gaudi 3.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import Final

from hpu_core.discovery import _generation
from hpu_core.discovery._device import (
    OPERATIONAL,
    Finding,
    HPUDevice,
    pci_address,
    printable,
    small_number,
    status,
    with_memory_of_generation,
)

NO_NODE: Final = "No device node"

# Attributes are one line; nothing longer is read from a file that pretends to be one.
_MAX_BYTES = 4096

_HEX = re.compile(r"(?:0x)?[0-9a-f]{1,8}", re.IGNORECASE)


# `accel_controlD3` and `hl_controlD3` are the control nodes of cards that are listed already, and match neither.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Where a driver puts its cards: the card `folder`/`prefix`3 has the node /dev/`nodes`/`prefix`3."""

    folder: str
    prefix: str
    nodes: str


# Other vendors' drivers put their devices into the class `accel` too; the older class is the driver's own.
_LAYOUTS = (_Layout("accel", "accel", "accel"), _Layout("habanalabs", "hl", ""))


def find(classes: Path = Path("/sys/class"), nodes: Path = Path("/dev")) -> Finding:
    """List the cards below `classes`.

    A card without its node below `nodes` is listed with the status "No device node": inside a container, sysfs shows
    every card of the host, but only the nodes of the cards that the container was given exist.

    Args:
        classes: The folder of device classes.
        nodes: The folder of device nodes.
    """
    place = " and ".join(f"{classes}/{layout.folder}/{layout.prefix}*/device" for layout in _LAYOUTS)
    remarks = []
    for layout in _LAYOUTS:
        devices, remark = _read_class(classes / layout.folder, layout, nodes / layout.nodes)
        if devices:
            return Finding(source="sysfs", place=place, found=remark, devices=devices)
        remarks.append(f"{layout.folder}: {remark}")
    return Finding(source="sysfs", place=place, found="; ".join(remarks))


def _read_class(folder: Path, layout: _Layout, nodes: Path) -> tuple[tuple[HPUDevice, ...], str]:
    """Read one device class; return its cards and what there is to say about the folder."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return (), "no such folder"
    except OSError as error:
        return (), f"cannot be read ({error.strerror or type(error).__name__})"
    # Only names of the prefix and a number remain, so that their numbers can order them: accel2 before accel10.
    names = [name for name in names if name.startswith(layout.prefix) and _NUMBER.fullmatch(name[len(layout.prefix) :])]
    entries = [folder / name for name in sorted(names, key=lambda name: int(name[len(layout.prefix) :]))]
    gaudis = [entry for entry in entries if _hex(entry / "device" / "vendor") == _generation.PCI_VENDOR]
    devices = tuple(_read_card(entry, index, nodes) for index, entry in enumerate(gaudis))
    return devices, f"{len(gaudis)} of {len(entries)} devices are of PCI vendor {_generation.PCI_VENDOR:#x}"


def _read_card(entry: Path, index: int, nodes: Path) -> HPUDevice:
    """Read the attributes of one card. What cannot be read stays unknown."""
    state = status(_attribute(entry, "status"))
    if state == OPERATIONAL and not (nodes / entry.name).exists():
        state = NO_NODE
    return with_memory_of_generation(
        HPUDevice(
            index=index,
            module_id=small_number(_attribute(entry, "module_id")),
            pci_address=pci_address(_attribute(entry, "pci_addr")) or pci_address(_target_name(entry / "device")),
            generation=_generation.from_device_type(_attribute(entry, "device_type"))
            or _generation.from_pci_id(_hex(entry / "device" / "device") or 0),
            status=state,
            driver_version=printable(_attribute(entry, "driver_ver")) or None,
            source="sysfs",
        )
    )


def _attribute(entry: Path, name: str) -> str:
    """Read an attribute of the driver's: below `device` today, beside it in the class `habanalabs`."""
    return _line(entry / "device" / name) or _line(entry / name)


def _hex(path: Path) -> int | None:
    text = _line(path)
    return int(text, 16) if _HEX.fullmatch(text) else None


def _line(path: Path) -> str:
    """Return the text of a small file, or "" when there is none to be had: a card in reset refuses some reads."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _target_name(link: Path) -> str:
    """Return the last part of what `link` points to, which is the PCI address in the real tree."""
    # Unlike Path.resolve, this answers for a loop of links, too.
    return Path(os.path.realpath(link)).name
