"""Tests of finding the SynapseAI release."""

import pytest
from packaging.version import Version

from hpu_core.discovery import HPUDevice, SynapseVersion, driver_release
from hpu_core.discovery._synapse import find


def _device_at(driver_version: str | None, *, simulated: bool = False) -> HPUDevice:
    return HPUDevice(index=0, driver_version=driver_version, simulated=simulated, source="sysfs")


def test_plugin_is_first() -> None:
    found = find("1.24.1.482", [_device_at("1.18.0-ee698fb")])

    assert found == SynapseVersion(Version("1.24.1.482"), "habana-torch-plugin")


def test_driver_is_second() -> None:
    assert find(None, [_device_at("1.18.0-ee698fb")]) == SynapseVersion(Version("1.18.0"), "driver")


def test_invalid_plugin_version_is_ignored() -> None:
    assert find("unknown", [_device_at("1.18.0-x")]) == SynapseVersion(Version("1.18.0"), "driver")


def test_different_drivers_give_no_release() -> None:
    assert find(None, [_device_at("1.18.0-x"), _device_at("1.19.0-y")]) is None


def test_unknown_release() -> None:
    assert find(None, [_device_at(None)]) is None


def test_simulated_devices_give_no_release() -> None:
    """The software of this machine does not describe the simulated one."""
    assert find(None, [_device_at("1.18.0", simulated=True)]) is None


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("1.18.0-ee698fb", Version("1.18.0")),
        ("1.24.1", Version("1.24.1")),
        ("1.18", None),
        ("ee698fb", None),
        ("", None),
        (None, None),
    ],
)
def test_driver_release(driver: str | None, expected: Version | None) -> None:
    assert driver_release(driver) == expected
