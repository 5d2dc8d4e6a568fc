"""Generation of a device, from the names and ids that the driver and its tools report.

Sources: PCI ids and device types of the habanalabs driver in the Linux kernel; product names and memory sizes of
Intel's documentation and of published logs of `hl-smi`. No log with the names of Gaudi 3 was available.
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

# HL-205 is a Gaudi, HL-225 and HL-288 are Gaudi 2, HL-325 and HL-338 are Gaudi 3. The last digit is the form factor,
# and a letter may follow it.
_PRODUCTS: dict[str, Generation] = {
    "HL-20": "GAUDI",
    "HL-22": "GAUDI2",
    "HL-28": "GAUDI2",
    "HL-32": "GAUDI3",
    "HL-33": "GAUDI3",
}

# A letter for the variant, the product, secured firmware: "GAUDI2C", "GAUDI2D HL-288", "GAUDI HL2000M SEC".
_DEVICE_TYPE = re.compile(r"(GAUDI[23]?)[A-Z]?(?: HL-?[0-9]{3,4}[A-Z]?)?(?: SEC)?")
_PRODUCT = re.compile(r"(HL-[0-9]{2})[0-9][A-Z]?")
_FIRMWARE = re.compile(r"\bhl-(gaudi[23]?)-")


def from_device_type(device_type: str) -> Generation | None:
    """Return the generation for the type that driver or bridge report, such as "GAUDI2C"; None if it is unknown."""
    match = _DEVICE_TYPE.fullmatch(device_type)
    return _NAMES[match[1]] if match else None


def from_pci_id(number: int) -> Generation | None:
    """Return the generation for a PCI device id, with vendor id (0x1da31020) or without (0x1020); None if unknown."""
    vendor, device = divmod(number, 0x10000)
    return _PCI_DEVICES.get(device) if vendor in {0, PCI_VENDOR} else None


def from_product(product: str) -> Generation | None:
    """Return the generation for a product name, such as "HL-225"; None if unknown."""
    match = _PRODUCT.fullmatch(product)
    return _PRODUCTS.get(match[1]) if match else None


def from_firmware(version: str) -> Generation | None:
    """Return the generation for a firmware version, such as "Preboot version hl-gaudi2-1.12.1-fw-46.0.5"."""
    match = _FIRMWARE.search(version)
    return _NAMES[match[1].upper()] if match else None
