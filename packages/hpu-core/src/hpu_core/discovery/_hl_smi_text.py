"""The outputs of `hl-smi`, read. Pure functions of text; a text that is not wholly understood gives nothing.

Half a list would be a wrong count, so these functions answer None rather than with the part they could read.

Source: logs of hl-smi for SynapseAI 1.12 and 1.18, and Intel's documentation of its query option. The units are MiB,
also where hl-smi writes MB: a Gaudi 2 has 98304 of them.
"""

import csv
import re
from collections.abc import Iterable
from typing import Final

from packaging.version import Version

from hpu_core.discovery import _generation
from hpu_core.discovery._device import (
    HPUDevice,
    pci_address,
    printable,
    small_number,
    status,
    with_memory_of_generation,
)

# The fields of the query, in the order in which they are asked for.
QUERY: Final = ("index", "module_id", "bus_id", "name", "memory.total", "driver_version")

_MIB = 1024**2

_CARD = re.compile(r"\[([0-9]{1,3})\] AIP \(\w+\) (\S+)")
_VERSION = re.compile(r"\bhl-([0-9]{1,4}(?:\.[0-9]{1,6}){1,3})\b")
_MIB_FIGURE = re.compile(r"([0-9]{1,9})(?: MI?B)?", re.IGNORECASE)
_PCI_ID = re.compile(r"0x[0-9a-f]{1,8}", re.IGNORECASE)


def read_log(text: str) -> tuple[HPUDevice, ...] | None:
    """Read the output of `hl-smi -L`, which has a section per card; None when it is not such a text."""
    head, *sections = _sections(text.splitlines())
    general = _fields(head)
    if small_number(general.get("Attached AIPs", "")) != len(sections):
        return None
    devices = []
    for index, (title, *body) in enumerate(sections):
        device = _section(index, title, body, general.get("Driver Version", ""))
        if device is None:
            return None
        devices.append(device)
    return _distinct(devices)


def read_query(text: str) -> tuple[HPUDevice, ...] | None:
    """Read the output of `hl-smi -Q <QUERY> -f csv`; None when it is not such a text.

    The query has no field for a card's status, which therefore is "Unknown".
    """
    try:
        rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True, strict=True) if row]
    except csv.Error:
        return None
    # The header may carry units, as in "memory.total [MiB]".
    if not rows or tuple(name.partition(" [")[0].strip() for name in rows[0]) != QUERY:
        return None
    devices = []
    for index, row in enumerate(rows[1:]):
        if len(row) != len(QUERY):
            return None
        device = _row(index, dict(zip(QUERY, row, strict=True)))
        if device is None:
            return None
        devices.append(device)
    return _distinct(devices)


def read_version(text: str) -> Version | None:
    """Read the SynapseAI release out of the output of `hl-smi -v`, as in "version hl-1.18.0-fw-53.1.1.1"."""
    match = _VERSION.search(text)
    return Version(match[1]) if match else None


def _sections(lines: Iterable[str]) -> list[list[str]]:
    """Split the log at its cards: the general part first, then one part per card, beginning with its title."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if _CARD.fullmatch(line.strip()):
            parts.append([])
        parts[-1].append(line)
    return parts


def _section(index: int, title: str, body: list[str], driver: str) -> HPUDevice | None:
    """Describe the card of one section; None when the section contradicts its place in the log or itself."""
    match = _CARD.fullmatch(title.strip())
    address = pci_address(match[2]) if match else None
    fields = _fields(body)
    if match is None or int(match[1]) != index or address is None:
        return None
    if pci_address(fields.get("Bus Id", match[2])) != address:
        return None
    pci_id = fields.get("Device Id", "")
    memory = _bytes(_fields(_block("Memory Usage", body)).get("Total", ""))
    return with_memory_of_generation(
        HPUDevice(
            index=index,
            module_id=small_number(fields.get("Module ID", "")),
            pci_address=address,
            generation=_generation.from_pci_id(int(pci_id, 16) if _PCI_ID.fullmatch(pci_id) else 0)
            or _generation.from_product(fields.get("Product Name", ""))
            or _generation.from_firmware(fields.get("Firmware [SPI] Version", "")),
            memory_bytes=memory,
            memory_source="reported" if memory else None,
            status=status(fields.get("Module status", "")),
            driver_version=printable(driver) or None,
            source="hl-smi",
        )
    )


def _row(index: int, fields: dict[str, str]) -> HPUDevice | None:
    """Describe the card of one row of the query; None when the row contradicts its place."""
    address = pci_address(fields["bus_id"])
    if small_number(fields["index"]) != index or address is None:
        return None
    memory = _bytes(fields["memory.total"])
    return with_memory_of_generation(
        HPUDevice(
            index=index,
            module_id=small_number(fields["module_id"]),
            pci_address=address,
            generation=_generation.from_product(fields["name"].strip()),
            memory_bytes=memory,
            memory_source="reported" if memory else None,
            driver_version=printable(fields["driver_version"]) or None,
            source="hl-smi",
        )
    )


def _fields(lines: Iterable[str]) -> dict[str, str]:
    """Read the lines "name : value"; the first of a name counts, since sub-blocks repeat names such as "Total"."""
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _block(title: str, lines: list[str]) -> list[str]:
    """Return the lines after the heading `title`."""
    for number, line in enumerate(lines):
        if line.strip().removesuffix(":").rstrip().endswith(title):
            return lines[number + 1 :]
    return []


def _bytes(text: str) -> int | None:
    match = _MIB_FIGURE.fullmatch(text.strip())
    return int(match[1]) * _MIB or None if match else None


def _distinct(devices: list[HPUDevice]) -> tuple[HPUDevice, ...] | None:
    """Return the cards, or None when two of them claim the same PCI address or module id."""
    for claims in ([device.pci_address for device in devices], [device.module_id for device in devices]):
        known = [claim for claim in claims if claim is not None]
        if len(set(known)) < len(known):
            return None
    return tuple(devices)
