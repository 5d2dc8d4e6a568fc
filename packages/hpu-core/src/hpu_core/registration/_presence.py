"""Whether this machine may have Gaudi cards, decided in microseconds: it is asked at every `import torch`.

`hpu_core.discovery` gives the real answer, and loads more than a program without a card should pay for.
"""

import os
from pathlib import Path
from typing import Final

# Habana Labs, as PCI knows them; other vendors' devices are in the class `accel`, too.
_VENDOR: Final = "0x1da3"

_CLASSES: Final = (Path("/sys/class/accel"), Path("/sys/class/habanalabs"))


def is_likely() -> bool:
    """Tell whether there is a card, the simulator is asked for, or the bridge or a running simulator can be found."""
    return bool(os.environ.get("HPU_SIM_DEVICES")) or any(map(_has_card, _CLASSES)) or _has_bridge()


def _has_bridge() -> bool:
    # Where the question has been answered already, this would be half of the time that it takes.
    from hpu_core import bridge

    return bridge.is_installed()


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
