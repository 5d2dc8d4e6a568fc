"""Devices that a loaded bridge counts, by calls that open no device."""

import functools
import importlib

from hpu_core import bridge
from hpu_core.discovery import _generation
from hpu_core.discovery._device import OPERATIONAL, HPUDevice, SourceResult

_result = functools.partial(SourceResult, source="bridge", location="the Gaudi PyTorch bridge (habana_frameworks)")


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


def find() -> SourceResult:
    """List the devices that the bridge counts, if this process has loaded it. Importing torch may load it.

    They count as operational. The bridge reports their module ids and PCI addresses only after opening a device.
    """
    import_torch()
    if not bridge.is_loaded():
        return _result(message="not loaded in this process")
    simulated = bridge.is_simulated()
    count = bridge.device_count()
    if count < 1:
        return _result(message="loaded, but reports no card")
    generation = _find_generation()
    devices = tuple(
        HPUDevice(
            index=index,
            # Modules of the simulator are numbered like its devices.
            module_id=index if simulated else None,
            generation=generation,
            status=OPERATIONAL,
            simulated=simulated,
            source="bridge",
        )
        for index in range(count)
    )
    message = f"counts {count} {'simulated ' if simulated else ''}card{'s' if count > 1 else ''}"
    return _result(message=message, devices=devices)


def _find_generation() -> _generation.Generation | None:
    try:
        return _generation.from_device_type(bridge.generation())
    except Exception:  # noqa: BLE001 - it uses a private function of the bridge, and the count is valid without it.
        return None
