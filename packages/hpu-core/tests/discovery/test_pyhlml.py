"""Tests of the devices that pyhlml lists."""

import contextlib
import io
from types import SimpleNamespace
from typing import Any

import pytest

from hpu_core.discovery import HPUDevice, _pyhlml

_GIB = 1024**3


class HLMLError(Exception):
    """Stand-in for the library's exceptions, which have no common base class."""


class _FakeHLML:
    """Library with two devices that must be initialized first, like the real one."""

    def __init__(self, *, initialized: bool = False) -> None:
        self.initialized = initialized
        self.calls: list[str] = []

    def hlmlInit(self) -> None:  # noqa: N802 - pyhlml's name.
        self.calls.append("init")
        self.initialized = True

    def hlmlShutdown(self) -> None:  # noqa: N802 - pyhlml's name.
        self.calls.append("shutdown")
        self.initialized = False

    def hlmlDeviceGetCount(self) -> int:  # noqa: N802 - pyhlml's name.
        if not self.initialized:
            raise HLMLError(1)
        return 2

    def hlmlGetDriverVersion(self) -> bytes:  # noqa: N802 - pyhlml's name.
        return b"1.24.1-1a2b3c4\n"

    def hlmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 - pyhlml's name.
        return index

    def hlmlDeviceGetPCIInfo(self, handle: int) -> Any:  # noqa: N802 - pyhlml's name.
        return SimpleNamespace(bus_id=b"0000:%d:00.0" % (19 + handle), pci_device_id=0x1DA31020)

    def hlmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802 - pyhlml's name.
        return SimpleNamespace(total=96 * _GIB, used=0, free=96 * _GIB)

    def hlmlDeviceGetModuleID(self, handle: int) -> int:  # noqa: N802 - pyhlml's name.
        return 7 - handle

    def hlmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802 - pyhlml's name.
        return b"HL-225"

    def hlmlDeviceGetOperationStatus(self, handle: int) -> bytes:  # noqa: N802 - pyhlml's name.
        return b"Operational"


def test_all_fields() -> None:
    devices = _pyhlml.find(_FakeHLML).devices

    assert devices[1] == HPUDevice(
        index=1,
        module_id=6,
        pci_address="0000:20:00.0",
        generation="GAUDI2",
        memory_bytes=96 * _GIB,
        status="Operational",
        driver_version="1.24.1-1a2b3c4",
        source="pyhlml",
    )


def test_library_is_shut_down() -> None:
    library = _FakeHLML()
    _pyhlml.find(lambda: library)

    assert library.calls == ["init", "shutdown"]


def test_initialized_library_stays_initialized() -> None:
    """Other code of this process may use it."""
    library = _FakeHLML(initialized=True)
    result = _pyhlml.find(lambda: library)

    assert (len(result.devices), library.calls) == (2, [])


def test_library_is_shut_down_after_failure() -> None:
    library = _FakeHLML()
    library.hlmlDeviceGetHandleByIndex = None  # type: ignore[assignment]  # Not callable: fails when it is called.
    with pytest.raises(TypeError):
        _pyhlml.find(lambda: library)

    assert library.calls == ["init", "shutdown"]


def test_not_installed() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'pyhlml'", name="pyhlml")

    assert _pyhlml.find(load).message == "not installed"


def test_missing_library_prints_nothing() -> None:
    """Pyhlml itself prints a message to stdout."""

    class WithoutLibrary(_FakeHLML):
        def hlmlInit(self) -> None:  # noqa: N802 - pyhlml's name.
            print("Failed to load libhlml")  # noqa: T201 - as the real one does.
            raise HLMLError(1)

    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(HLMLError):
        _pyhlml.find(WithoutLibrary)

    assert printed.getvalue() == ""


@pytest.mark.parametrize(
    ("function", "field", "expected"),
    [
        ("hlmlGetDriverVersion", "driver_version", None),
        ("hlmlDeviceGetPCIInfo", "pci_address", None),
        ("hlmlDeviceGetPCIInfo", "generation", "GAUDI2"),
        ("hlmlDeviceGetName", "generation", "GAUDI2"),
        ("hlmlDeviceGetMemoryInfo", "memory_bytes", None),
        ("hlmlDeviceGetModuleID", "module_id", None),
        ("hlmlDeviceGetOperationStatus", "status", "Unknown"),
    ],
)
@pytest.mark.parametrize("answer", [None, "", HLMLError(3)])
def test_failing_function_costs_one_field(function: str, field: str, expected: object, answer: object) -> None:
    """Older libraries lack some functions."""

    def fail(*_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    library = _FakeHLML()
    setattr(library, function, fail)
    devices = _pyhlml.find(lambda: library).devices

    assert [getattr(device, field) for device in devices] == [expected, expected]


def test_invalid_values_are_unknown() -> None:
    library = _FakeHLML()
    library.hlmlGetDriverVersion = lambda: b"\xff\xfe"  # type: ignore[method-assign]
    library.hlmlDeviceGetModuleID = lambda handle: b"3"  # type: ignore[assignment,method-assign,return-value]
    library.hlmlDeviceGetPCIInfo = lambda handle: SimpleNamespace(  # type: ignore[method-assign]
        bus_id=b"\xff", pci_device_id=-1
    )
    library.hlmlDeviceGetName = lambda handle: b"\xff"  # type: ignore[method-assign]
    device = _pyhlml.find(lambda: library).devices[0]

    assert (device.module_id, device.pci_address, device.generation) == (None, None, None)
    assert (device.driver_version, device.memory_bytes) == ("?", 96 * _GIB)
