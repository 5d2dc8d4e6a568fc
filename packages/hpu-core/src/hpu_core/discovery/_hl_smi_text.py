"""Parsers for the output of `hl-smi`.

They return None for text that is not valid throughout, because part of a list would be a wrong count.

Sources: logs of hl-smi from SynapseAI 1.12 and 1.18. Units are MiB, also where hl-smi writes MB: a Gaudi 2 has 98304 of
them.
"""
# hpu-doctor verify: hl-smi-describes-cards, limit-of-gaudi2

import re

from packaging.version import Version

from hpu_core.discovery import _generation
from hpu_core.discovery._device import HPUDevice, parse_int, parse_pci_address, parse_status, printable

_MIB = 1024**2

# Title of a device's section, with its index and its bus id.
_TITLE = re.compile(r"^[ \t]*\[([0-9]{1,3})\] AIP \(\w+\) (\S+)[ \t\r]*$", re.MULTILINE)
_VERSION = re.compile(r"\bhl-([0-9]{1,4}(?:\.[0-9]{1,6}){1,3})\b")
_MEMORY = re.compile(r"([0-9]{1,9})(?: MI?B)?", re.IGNORECASE)
_PCI_ID = re.compile(r"0x[0-9a-f]{1,8}", re.IGNORECASE)


def parse_log(text: str) -> tuple[HPUDevice, ...] | None:
    """Return the devices in the output of `hl-smi -L`, None if it has another format."""
    header, *parts = _TITLE.split(text)
    sections = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    general = _parse_fields(header)
    if parse_int(general.get("Attached AIPs", "")) != len(sections):
        return None
    devices = []
    for index, (number, bus_id, body) in enumerate(sections):
        device = _parse_section(index, bus_id, body, general.get("Driver Version", ""))
        if device is None or int(number) != index:
            return None
        devices.append(device)
    return _unless_duplicate(devices)


def parse_version(text: str) -> Version | None:
    """Return the SynapseAI release in the output of `hl-smi -v`, as in "version hl-1.18.0-fw-53.1.1.1"."""
    match = _VERSION.search(text)
    return Version(match[1]) if match else None


def _parse_section(index: int, bus_id: str, body: str, driver: str) -> HPUDevice | None:
    """Return the device of a section; None if the bus id of its title is no PCI address, or the section has another."""
    address = parse_pci_address(bus_id)
    fields = _parse_fields(body)
    if address is None or parse_pci_address(fields.get("Bus Id", bus_id)) != address:
        return None
    pci_id = fields.get("Device Id", "")
    _, _, memory = body.partition("Memory Usage")
    return HPUDevice(
        index=index,
        module_id=parse_int(fields.get("Module ID", "")),
        pci_address=address,
        generation=_generation.from_pci_id(int(pci_id, 16) if _PCI_ID.fullmatch(pci_id) else 0)
        or _generation.from_product(fields.get("Product Name", ""))
        or _generation.from_firmware(fields.get("Firmware [SPI] Version", "")),
        memory_bytes=_parse_memory(_parse_fields(memory).get("Total", "")),
        status=parse_status(fields.get("Module status", "")),
        driver_version=printable(driver) or None,
        source="hl-smi",
    )


def _parse_fields(text: str) -> dict[str, str]:
    """Return the lines "name : value" as a dict; the first value wins, because blocks repeat names such as "Total"."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _parse_memory(text: str) -> int | None:
    match = _MEMORY.fullmatch(text.strip())
    return int(match[1]) * _MIB or None if match else None


def _unless_duplicate(devices: list[HPUDevice]) -> tuple[HPUDevice, ...] | None:
    """Return the devices, None if two of them have the same PCI address or module id."""
    for ids in ([device.pci_address for device in devices], [device.module_id for device in devices]):
        known = [value for value in ids if value is not None]
        if len(set(known)) < len(known):
            return None
    return tuple(devices)
