"""Devices that pyhlml lists, the Python binding of Intel's management library HLML. It opens no device.

Source: the wheel habana-pyhlml 1.24.2.
"""

import contextlib
import functools
import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

from hpu_core.discovery import _generation
from hpu_core.discovery._device import HPUDevice, SourceResult, parse_pci_address, parse_status, printable

_result = functools.partial(SourceResult, source="pyhlml", location="pyhlml (the distribution habana-pyhlml)")


def find(load: Callable[[], Any] = lambda: importlib.import_module("pyhlml")) -> SourceResult:
    """List the devices that pyhlml reports.

    Raises:
        Exception: A function of pyhlml failed; it creates the classes of its exceptions at run time.
    """
    try:
        pyhlml = load()
    except ImportError:
        return _result(message="not installed")
    with _initialized(pyhlml):
        devices = _devices(pyhlml)
    return _result(message=f"lists {len(devices)} cards", devices=devices)


def initialize(pyhlml: Any) -> None:
    """Initialize HLML and discard the message that pyhlml prints to stdout if the library is missing."""
    with contextlib.redirect_stdout(io.StringIO()):
        pyhlml.hlmlInit()


@contextlib.contextmanager
def _initialized(pyhlml: Any) -> Iterator[None]:
    """Initialize HLML inside the context, unless the process has initialized it and still uses it afterwards."""
    try:
        pyhlml.hlmlDeviceGetCount()
    except Exception:  # noqa: BLE001 - AttributeError before the first hlmlInit, an HLMLError after hlmlShutdown.
        initialize(pyhlml)
    else:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            pyhlml.hlmlShutdown()


def _devices(pyhlml: Any) -> tuple[HPUDevice, ...]:
    driver = _text(_call(pyhlml, "hlmlGetDriverVersion"))
    return tuple(_device(pyhlml, index, driver) for index in range(pyhlml.hlmlDeviceGetCount()))


def _device(pyhlml: Any, index: int, driver: str) -> HPUDevice:
    handle = pyhlml.hlmlDeviceGetHandleByIndex(index)
    pci = _call(pyhlml, "hlmlDeviceGetPCIInfo", handle)
    module = _call(pyhlml, "hlmlDeviceGetModuleID", handle)
    return HPUDevice(
        index=index,
        module_id=module if isinstance(module, int) else None,
        pci_address=parse_pci_address(_text(getattr(pci, "bus_id", b""))),
        generation=_generation.from_pci_id(_positive(getattr(pci, "pci_device_id", None)) or 0)
        or _generation.from_product(_text(_call(pyhlml, "hlmlDeviceGetName", handle))),
        memory_bytes=_positive(getattr(_call(pyhlml, "hlmlDeviceGetMemoryInfo", handle), "total", None)),
        # Older wheels have no hlmlDeviceGetOperationStatus.
        status=parse_status(_text(_call(pyhlml, "hlmlDeviceGetOperationStatus", handle))),
        driver_version=driver or None,
        source="pyhlml",
    )


def _call(pyhlml: Any, function: str, *arguments: Any) -> Any:
    """Call a function of pyhlml; return None if it does not exist or fails."""
    try:
        return getattr(pyhlml, function)(*arguments)
    except Exception:  # noqa: BLE001 - pyhlml creates its exception classes at run time.
        return None


def _text(value: Any) -> str:
    """Return the library's bytes or str as printable text, "" for other types."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return printable(value) if isinstance(value, str) else ""


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
