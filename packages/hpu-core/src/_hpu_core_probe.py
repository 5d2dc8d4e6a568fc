"""Fast checks for a device, which every `import torch` runs; they may report one where there is none.

A top-level module, because importing `hpu_core` takes longer than a program without a device should pay for. It imports
nothing but the standard library. Use `hpu_core.is_available` for an exact answer.
"""

import importlib.util
import os
import sys
from typing import Final

AUTOLOAD: Final = "HPU_CORE_AUTOLOAD"
"""Environment variable that disables implicit registration when it is "0"."""

BRIDGE: Final = "habana_frameworks.torch"
"""Package of the bridge."""

# The PCI vendor id of Habana Labs. The class `accel` also lists devices of other vendors.
_PCI_VENDOR: Final = "0x1da3"

_SYSFS_CLASSES: Final = ("/sys/class/accel", "/sys/class/habanalabs")


def is_autoload_enabled() -> bool:
    """Return whether implicit registration is allowed, that is HPU_CORE_AUTOLOAD is not "0"."""
    return os.environ.get(AUTOLOAD) != "0"


def maybe_has_hpu() -> bool:
    """Return whether HPU_SIM_DEVICES is set, sysfs shows a Gaudi, or the bridge is installed."""
    return bool(os.environ.get("HPU_SIM_DEVICES")) or any(map(_has_gaudi, _SYSFS_CLASSES)) or has_bridge()


def has_bridge() -> bool:
    """Return whether the bridge can be imported. Does not import it, and never raises."""
    if sys.modules.get(BRIDGE) is not None:
        return True
    try:
        return importlib.util.find_spec(BRIDGE) is not None
    except ImportError:
        # The parent package does not exist.
        return False


# `os` and `open`: pathlib takes several times as long.
def _has_gaudi(sysfs_class: str) -> bool:
    try:
        devices = os.listdir(sysfs_class)  # noqa: PTH208 - see above
    except OSError:
        return False
    return any(_read_vendor(f"{sysfs_class}/{device}/device/vendor") == _PCI_VENDOR for device in devices)


def _read_vendor(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - see above
            return file.read().strip().lower()
    except OSError:
        return ""
