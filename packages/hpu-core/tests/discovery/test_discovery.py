"""Tests that the public functions agree on the same devices."""

import re
from collections.abc import Callable

import pytest

from hpu_core import discovery
from hpu_core.discovery import HPUDevice, NoHPUError, ScanResult, SourceResult, VisibleModulesError

SetDevices = Callable[..., None]


@pytest.fixture
def set_devices(monkeypatch: pytest.MonkeyPatch) -> SetDevices:
    """Replace the devices of this machine: `set_devices(device, ...)`."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)

    def replace(*devices: HPUDevice) -> None:
        sources = (SourceResult(source="sysfs", location="/sys/class/accel", message="no such folder"),)
        monkeypatch.setattr(discovery, "scan", lambda: ScanResult(devices=devices, sources=sources))

    replace()
    return replace


_WORKING = HPUDevice(index=0, module_id=0, generation="GAUDI2", status="Operational", source="sysfs")
_BROKEN = HPUDevice(index=1, module_id=1, generation="GAUDI2", status="Malfunction", source="sysfs")


def test_faulty_devices_are_listed_but_not_counted(set_devices: SetDevices) -> None:
    set_devices(_WORKING, _BROKEN)

    assert discovery.devices() == (_WORKING, _BROKEN)
    assert discovery.device_count() == 1
    assert discovery.auto_device_count() == 1
    assert discovery.is_available() is True
    assert discovery.device_name() == "GAUDI2"
    assert discovery.parse_devices(-1) == 1


def test_machine_without_devices(set_devices: SetDevices) -> None:
    set_devices()

    assert discovery.devices() == ()
    assert discovery.device_count() == 0
    assert discovery.is_available() is False
    assert discovery.device_name() is None


def test_visible_modules_limit_the_count(set_devices: SetDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    """HABANA_VISIBLE_MODULES does not limit the list."""
    set_devices(_WORKING, HPUDevice(index=1, module_id=1, status="Operational", source="sysfs"))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")

    assert discovery.device_count() == 1
    assert len(discovery.devices()) == 2


@pytest.mark.parametrize("value", ["0,x", "", "1,1", "-1", "0,1,2,3,4,5,6,7,8", "5"])
def test_invalid_visible_modules(set_devices: SetDevices, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Counting raises an error, and `is_available` does not."""
    set_devices(_WORKING)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", value)

    for function in (discovery.device_count, discovery.auto_device_count, lambda: discovery.check_devices(1)):
        with pytest.raises(VisibleModulesError, match="HABANA_VISIBLE_MODULES"):
            function()
    assert discovery.is_available() is True


def test_too_few_devices(set_devices: SetDevices) -> None:
    set_devices(_WORKING, _BROKEN)
    message = "`devices` must be at most 1, the number of cards that can be used here, got 2"

    discovery.check_devices(1)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        discovery.check_devices(2)


def test_too_few_visible_modules(set_devices: SetDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    set_devices(_WORKING, HPUDevice(index=1, module_id=1, status="Operational", source="sysfs"))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")

    with pytest.raises(ValueError, match=r"can be used here with HABANA_VISIBLE_MODULES='1', got 2$"):
        discovery.check_devices(2)


@pytest.mark.parametrize("function", [discovery.auto_device_count, lambda: discovery.parse_devices("auto")])
def test_error_without_devices_lists_the_sources(set_devices: SetDevices, function: Callable[[], int]) -> None:
    set_devices()

    with pytest.raises(NoHPUError, match=r"(?s)no Gaudi card was found.*/sys/class/accel: no such folder"):
        function()
