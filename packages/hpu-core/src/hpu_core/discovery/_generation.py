"""Generation of a device, from the names and ids that the driver and its tools report.

Sources: PCI ids and device types of the habanalabs driver in the Linux kernel; memory sizes of Intel's documentation.
"""

import re
from typing import Final, Literal, TypeAlias

Generation: TypeAlias = Literal["GAUDI", "GAUDI2", "GAUDI3"]

PCI_VENDOR: Final = 0x1DA3

_GIB = 1024**3

MEMORY_BYTES: Final[dict[Generation, int]] = {"GAUDI": 32 * _GIB, "GAUDI2": 96 * _GIB, "GAUDI3": 128 * _GIB}

_NAMES: dict[str, Generation] = {"GAUDI": "GAUDI", "GAUDI2": "GAUDI2", "GAUDI3": "GAUDI3"}

_PCI_DEVICES: dict[int, Generation] = {
    0x1000: "GAUDI",
    0x1001: "GAUDI",  # HL2000M.
    0x1010: "GAUDI",  # With secured firmware.
    0x1011: "GAUDI",  # HL2000M with secured firmware.
    0x1020: "GAUDI2",
    0x1021: "GAUDI2",  # HL-288.
    0x1060: "GAUDI3",
    0x1063: "GAUDI3",  # HL-338.
}

# A letter for the variant, the product, secured firmware: "GAUDI2C", "GAUDI2D HL-288", "GAUDI HL2000M SEC".
_DEVICE_TYPE = re.compile(r"(GAUDI[23]?)[A-Z]?(?: HL-?[0-9]{3,4}[A-Z]?)?(?: SEC)?")


def from_device_type(device_type: str) -> Generation | None:
    """Return the generation for the type that driver or bridge report, such as "GAUDI2C"; None if it is unknown."""
    match = _DEVICE_TYPE.fullmatch(device_type)
    return _NAMES[match[1]] if match else None


def from_pci_id(number: int) -> Generation | None:
    """Return the generation for a PCI device id, with vendor id (0x1da31020) or without (0x1020); None if unknown."""
    vendor, device = divmod(number, 0x10000)
    return _PCI_DEVICES.get(device) if vendor in {0, PCI_VENDOR} else None
