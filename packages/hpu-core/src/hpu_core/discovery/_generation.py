"""Generation of a device, from the type that the driver and the bridge report.

Sources: device types of the habanalabs driver in the Linux kernel; memory sizes of Intel's documentation.
"""

import re
from typing import Final, Literal, TypeAlias

Generation: TypeAlias = Literal["GAUDI", "GAUDI2", "GAUDI3"]

PCI_VENDOR: Final = 0x1DA3

_GIB = 1024**3

MEMORY_BYTES: Final[dict[Generation, int]] = {"GAUDI": 32 * _GIB, "GAUDI2": 96 * _GIB, "GAUDI3": 128 * _GIB}

_NAMES: dict[str, Generation] = {"GAUDI": "GAUDI", "GAUDI2": "GAUDI2", "GAUDI3": "GAUDI3"}

# A letter for the variant, the product, secured firmware: "GAUDI2C", "GAUDI2D HL-288", "GAUDI HL2000M SEC".
_DEVICE_TYPE = re.compile(r"(GAUDI[23]?)[A-Z]?(?: HL-?[0-9]{3,4}[A-Z]?)?(?: SEC)?")


def from_device_type(device_type: str) -> Generation | None:
    """Return the generation for the type that driver or bridge report, such as "GAUDI2C"; None if it is unknown."""
    match = _DEVICE_TYPE.fullmatch(device_type)
    return _NAMES[match[1]] if match else None
