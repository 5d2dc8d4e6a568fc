"""Entry point of `torch.backends`, which every `import torch` calls, and the fast checks for a device that it needs.

A module of its own: importing `hpu_core` takes longer than a program without a device should pay for, and so do the
exact checks of `hpu_core.discovery`.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

AUTOLOAD: Final = "HPU_CORE_AUTOLOAD"
"""Environment variable that disables implicit registration when it is "0"."""

BRIDGE: Final = "habana_frameworks.torch"

# The PCI vendor id of Habana Labs. The class `accel` also lists devices of other vendors.
_PCI_VENDOR: Final = "0x1da3"

_SYSFS_CLASSES: Final = (Path("/sys/class/accel"), Path("/sys/class/habanalabs"))

_LIGHTNING: Final = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})


def autoload() -> None:
    """Call `hpu_core.registration.autoload`; without a device, wait until Lightning is imported. Never raises.

    From torch 2.5 on `import torch` ends with this call. An exception would make torch unusable.
    """
    _autoload(now=not _LIGHTNING.isdisjoint(sys.modules))


@contextlib.contextmanager
def errors_logged() -> Iterator[None]:
    """Log an error instead of raising it, for code that runs in an import."""
    try:
        yield
    except Exception:
        import logging

        logging.getLogger(__name__).warning("cannot register HPU with Lightning", exc_info=True)


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


def _has_gaudi(sysfs_class: Path) -> bool:
    try:
        devices = os.listdir(sysfs_class)  # noqa: PTH208 - several times as fast as Path.iterdir.
    except OSError:
        return False
    return any(_read_vendor(sysfs_class / device) == _PCI_VENDOR for device in devices)


def _read_vendor(device: Path) -> str:
    try:
        return (device / "device" / "vendor").read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""


def _autoload(*, now: bool) -> None:
    with errors_logged():
        if not is_autoload_enabled():
            return
        if now or maybe_has_hpu():
            from hpu_core import registration

            registration.autoload()
        elif not any(isinstance(finder, _LightningFinder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _LightningFinder())


class _LightningFinder:
    """Meta path finder that calls `hpu_core.registration.autoload` before Lightning is imported."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return None, and for Lightning what the other finders return."""
        if fullname not in _LIGHTNING:
            return None
        # Another thread may be faster.
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        _autoload(now=True)
        # Both have changed the list that the caller iterates over.
        return importlib.util.find_spec(fullname)
