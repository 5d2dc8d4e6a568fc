"""Whether this machine may have Gaudi cards, decided in microseconds: it is asked at every `import torch`.

`hpu_core.discovery` gives the real answer, and loads more than a program without a card should pay for.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Final

# Habana Labs, as PCI knows them; other vendors' devices are in the class `accel`, too.
_VENDOR: Final = "0x1da3"

_CLASSES: Final = (Path("/sys/class/accel"), Path("/sys/class/habanalabs"))


def is_likely() -> bool:
    """Tell whether there is a card, the simulator is asked for, or the bridge is installed."""
    return (
        bool(os.environ.get("HPU_SIM_DEVICES"))
        or "habana_frameworks" in sys.modules
        or any(map(_has_card, _CLASSES))
        or _is_bridge_installed()
    )


def _has_card(folder: Path) -> bool:
    """Tell whether a class of the kernel's devices has one of the vendor's."""
    try:
        devices = os.listdir(folder)  # noqa: PTH208 - several times as fast as Path.iterdir
    except OSError:
        return False
    return any(_vendor(folder / device) == _VENDOR for device in devices)


def _vendor(device: Path) -> str:
    try:
        return (device / "device" / "vendor").read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""


def _is_bridge_installed() -> bool:
    try:
        return importlib.util.find_spec("habana_frameworks") is not None
    except (ImportError, ValueError):
        return False
