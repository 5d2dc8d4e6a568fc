"""Data of one device, data of one source, and parsers for their fields."""

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hpu_core.discovery._generation import Generation

Source: TypeAlias = Literal["bridge", "sysfs"]

OPERATIONAL: Final = "Operational"
UNKNOWN_STATUS: Final = "Unknown"

_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_NOT_PRINTABLE = re.compile(r"[^ -~]+")
_INT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HPUDevice:
    """Properties of one Gaudi device, read without opening it. None means unknown.

    Attributes:
        index: Number that `devices=[...]` takes for this card; None if it cannot be used. Cards are numbered in the
            order of their module ids, or of HABANA_VISIBLE_MODULES, as the bridge assigns them to local ranks. It is
            neither the number of hl-smi nor that of the driver, which differ by machine.
        module_id: Id that HABANA_VISIBLE_MODULES and HLS_MODULE_ID use.
        pci_address: PCI address in lower case, such as "0000:43:00.0".
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        memory_bytes: Size of the memory in bytes that all devices of the generation have (32, 96 or 128 GiB).
        status: Status that the driver reports, such as "Operational", "In reset" or "Malfunction"; else "Unknown".
        driver_version: Driver version, such as "1.18.0-ee698fb".
        simulated: Whether this is a device of the simulator.
        source: Source that listed the device. Other sources may have added details.
    """

    index: int | None
    module_id: int | None = None
    pci_address: str | None = None
    generation: Generation | None = None
    memory_bytes: int | None = None
    status: str = UNKNOWN_STATUS
    driver_version: str | None = None
    simulated: bool = False
    source: Source

    @property
    def is_operational(self) -> bool:
        """Whether a source reports the device as operational. A device of unknown status is not counted."""
        return self.status == OPERATIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """Result of one source.

    Attributes:
        source: The source.
        location: Where it searched.
        message: What it found there.
        devices: The devices that it lists, in its order.
    """

    source: Source
    location: str
    message: str
    devices: tuple[HPUDevice, ...] = ()


def printable(text: str) -> str:
    """Return `text` with anything but printable ASCII replaced by "?", safe for every terminal."""
    return _NOT_PRINTABLE.sub("?", text.strip())


def parse_pci_address(text: str) -> str | None:
    """Return a PCI address in its full form, with domain 0000 if none is given; None for other text."""
    match = _PCI_ADDRESS.fullmatch(text.strip())
    return f"{match[1] or '0000'}:{match[2]}".lower() if match else None


def parse_int(text: str) -> int | None:
    """Return a decimal number of at most nine digits; None for other text."""
    text = text.strip()
    return int(text) if _INT.fullmatch(text) else None


def parse_status(text: str) -> str:
    """Return a status in the driver's spelling; tools differ in case."""
    text = printable(text)
    return OPERATIONAL if text.casefold() == OPERATIONAL.casefold() else text or UNKNOWN_STATUS
