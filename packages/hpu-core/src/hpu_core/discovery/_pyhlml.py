"""Cards as Intel's management library lists them through pyhlml, its Python binding. Opens no card.

Source: the wheel habana-pyhlml 1.24.2.
"""

import contextlib
import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

from hpu_core.discovery import _generation
from hpu_core.discovery._device import (
    Finding,
    HPUDevice,
    pci_address,
    printable,
    status,
    with_memory_of_generation,
)

_PLACE = "pyhlml (the distribution habana-pyhlml)"


def find(load: Callable[[], Any] = lambda: importlib.import_module("pyhlml")) -> Finding:
    """List the cards that pyhlml knows.

    Args:
        load: Returns the module `pyhlml`, or raises ImportError.
    """
    # pyhlml prints to stdout when the library is missing, which would spoil the output of the program around it.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            pyhlml = load()
        except ImportError:
            return Finding(source="pyhlml", place=_PLACE, found="it is not installed")
        try:
            with _initialised(pyhlml):
                devices = _devices(pyhlml)
        except Exception as error:  # noqa: BLE001 - the library makes its error classes at run time.
            found = f"the library gave no list: {_reason(error)}"
            return Finding(source="pyhlml", place=_PLACE, found=found)
    return Finding(source="pyhlml", place=_PLACE, found=f"it lists {len(devices)} cards", devices=devices)


@contextlib.contextmanager
def _initialised(pyhlml: Any) -> Iterator[None]:
    """Initialise the library for the body, unless somebody in this process has: that one still needs it afterwards."""
    try:
        pyhlml.hlmlDeviceGetCount()
    except Exception:  # noqa: BLE001 - AttributeError before the first hlmlInit, an HLMLError after hlmlShutdown.
        pyhlml.hlmlInit()
    else:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            pyhlml.hlmlShutdown()


def _devices(pyhlml: Any) -> tuple[HPUDevice, ...]:
    driver = _text(_ask(pyhlml, "hlmlGetDriverVersion"))
    return tuple(_device(pyhlml, index, driver) for index in range(pyhlml.hlmlDeviceGetCount()))


def _device(pyhlml: Any, index: int, driver: str) -> HPUDevice:
    """Describe one card. What the library does not tell stays unknown."""
    handle = pyhlml.hlmlDeviceGetHandleByIndex(index)
    pci = _ask(pyhlml, "hlmlDeviceGetPCIInfo", handle)
    memory = _positive(getattr(_ask(pyhlml, "hlmlDeviceGetMemoryInfo", handle), "total", None))
    module = _ask(pyhlml, "hlmlDeviceGetModuleID", handle)
    return with_memory_of_generation(
        HPUDevice(
            index=index,
            module_id=module if isinstance(module, int) else None,
            pci_address=pci_address(_text(getattr(pci, "bus_id", b""))),
            generation=_generation.from_pci_id(_positive(getattr(pci, "pci_device_id", None)) or 0)
            or _generation.from_product(_text(_ask(pyhlml, "hlmlDeviceGetName", handle))),
            memory_bytes=memory,
            memory_source="reported" if memory else None,
            # hlmlDeviceGetOperationStatus is missing from older wheels.
            status=status(_text(_ask(pyhlml, "hlmlDeviceGetOperationStatus", handle))),
            driver_version=driver or None,
            source="pyhlml",
        )
    )


def _ask(pyhlml: Any, function: str, *arguments: Any) -> Any:
    """Call a function of pyhlml; None when it does not exist or fails."""
    try:
        return getattr(pyhlml, function)(*arguments)
    except Exception:  # noqa: BLE001 - see `find`.
        return None


def _text(value: Any) -> str:
    """Return what the library gives as bytes, or in some places as text, as printable text; "" for anything else."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return printable(value) if isinstance(value, str) else ""


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _reason(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")
