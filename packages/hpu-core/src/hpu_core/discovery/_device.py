"""What discovery says: the facts about one card, and what one source answered."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hpu_core.discovery._generation import MEMORY_BYTES, Generation

Source: TypeAlias = Literal["bridge", "pyhlml", "sysfs", "hl-smi"]
MemorySource: TypeAlias = Literal["reported", "generation"]

OPERATIONAL: Final = "Operational"
UNKNOWN_STATUS: Final = "Unknown"

_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_NOT_PRINTABLE = re.compile(r"[^ -~]+")
_SMALL_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HPUDevice:
    """What is known about one Gaudi card without opening it. None stands for what no source tells.

    Attributes:
        index: The card's place in this listing, from 0. No number of the driver's and not the module id.
        module_id: The number that HABANA_VISIBLE_MODULES and HLS_MODULE_ID use.
        pci_address: Such as "0000:43:00.0", in lower case.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        memory_bytes: Size of the card's memory in bytes.
        memory_source: "reported" when a tool told `memory_bytes`, "generation" when it is the size that every card
            of the generation has (32, 96 and 128 GiB).
        status: The driver's word, such as "Operational", "In reset" or "Malfunction"; "Unknown" when no source tells.
        driver_version: Such as "1.18.0-ee698fb".
        simulated: Whether the simulator plays this card.
        source: Which source listed the card; others may have filled in details.
    """

    index: int
    module_id: int | None = None
    pci_address: str | None = None
    generation: Generation | None = None
    memory_bytes: int | None = None
    memory_source: MemorySource | None = None
    status: str = UNKNOWN_STATUS
    driver_version: str | None = None
    simulated: bool = False
    source: Source

    @property
    def is_operational(self) -> bool:
        """Whether a source says that the card can be used. A card of which nobody says so is not counted."""
        return self.status == OPERATIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one source answered.

    Attributes:
        source: The source.
        place: Where it looked.
        found: What was there, in words.
        devices: The cards that it lists, in its order.
    """

    source: Source
    place: str
    found: str
    devices: tuple[HPUDevice, ...] = ()


def with_memory_of_generation(device: HPUDevice) -> HPUDevice:
    """Give `device` the memory size of its generation where no tool reported one."""
    if device.memory_bytes is not None or device.generation is None:
        return device
    return dataclasses.replace(device, memory_bytes=MEMORY_BYTES[device.generation], memory_source="generation")


def printable(text: str) -> str:
    """Return `text` with everything that is not printable ASCII shown as "?": it goes to terminals of any kind."""
    return _NOT_PRINTABLE.sub("?", text.strip())


def pci_address(text: str) -> str | None:
    """Return a PCI address in its full form, the domain being 0000 when it is left out; None for any other text."""
    match = _PCI_ADDRESS.fullmatch(text.strip())
    return f"{match[1] or '0000'}:{match[2]}".lower() if match else None


def small_number(text: str) -> int | None:
    """Return a decimal number of at most nine digits; None for any other text."""
    text = text.strip()
    return int(text) if _SMALL_NUMBER.fullmatch(text) else None


def status(text: str) -> str:
    """Return a card's status as the driver writes it; tools differ in its case."""
    text = printable(text)
    return OPERATIONAL if text.casefold() == OPERATIONAL.casefold() else text or UNKNOWN_STATUS
