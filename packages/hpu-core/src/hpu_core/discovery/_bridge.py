"""Devices that a loaded bridge counts, by calls that open no device."""

import functools
import importlib
from typing import Protocol

from hpu_core import bridge as _hpu_core_bridge
from hpu_core.discovery import _generation
from hpu_core.discovery._device import OPERATIONAL, HPUDevice, SourceResult, with_default_memory

_LOCATION = "the Gaudi PyTorch bridge (habana_frameworks)"


class Bridge(Protocol):
    """The functions of `hpu_core.bridge` that discovery uses."""

    def is_loaded(self) -> bool:
        """Return whether this process has imported the bridge."""

    def is_simulated(self) -> bool:
        """Return whether the loaded bridge is the simulator."""

    def device_count(self) -> int:
        """Return the number of devices that the driver reports."""

    def generation(self) -> str:
        """Return the generation of the devices."""


@functools.cache
def import_torch() -> str | None:
    """Import torch, which imports the bridge from torch 2.5 on, and return the error text if that fails.

    torch loads backends (entry points `torch.backends`) while it is imported: the bridge in eager mode, and the
    simulator. Without this, the result of discovery would depend on whether the program has imported torch.

    The first call decides, because a failed import of torch is slow and cannot be retried safely. A failure does not
    stop discovery: sysfs and the tools work without torch.
    """
    try:
        importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - an entry point of a backend may raise anything.
        return f"{type(error).__name__}: {error}"
    return None


def find(bridge: Bridge | None = None) -> SourceResult:
    """List the devices that the bridge counts, if this process has loaded it.

    They count as operational. The bridge reports their module ids and PCI addresses only after opening a device.

    Args:
        bridge: The bridge; `hpu_core.bridge` by default, and then torch is imported first.
    """
    if bridge is None:
        import_torch()
        bridge = _hpu_core_bridge
    if not bridge.is_loaded():
        return SourceResult(source="bridge", location=_LOCATION, message="not loaded in this process")
    simulated = bridge.is_simulated()
    count = bridge.device_count()
    if count < 1:
        return SourceResult(source="bridge", location=_LOCATION, message="loaded, but reports no card")
    generation = _generation_of(bridge)
    devices = tuple(
        with_default_memory(
            HPUDevice(
                index=index,
                # Modules of the simulator are numbered like its devices.
                module_id=index if simulated else None,
                generation=generation,
                status=OPERATIONAL,
                simulated=simulated,
                source="bridge",
            )
        )
        for index in range(count)
    )
    message = f"counts {count} {'simulated ' if simulated else ''}card{'s' if count > 1 else ''}"
    return SourceResult(source="bridge", location=_LOCATION, message=message, devices=devices)


def _generation_of(bridge: Bridge) -> _generation.Generation | None:
    try:
        return _generation.from_name(bridge.generation())
    except Exception:  # noqa: BLE001 - it uses a private function of the bridge, and the count is valid without it.
        return None
