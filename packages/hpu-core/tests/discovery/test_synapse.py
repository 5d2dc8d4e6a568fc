"""Tests of finding the SynapseAI release."""

import pytest
from packaging.version import Version

from hpu_core.discovery import HPUDevice, SynapseVersion, driver_release
from hpu_core.discovery._synapse import find

_DRIVER = SynapseVersion(Version("1.18.0"), "driver")


@pytest.mark.parametrize(
    ("plugin", "drivers", "simulated", "expected"),
    [
        ("1.24.1.482", ["1.18.0-ee698fb"], False, SynapseVersion(Version("1.24.1.482"), "habana-torch-plugin")),
        (None, ["1.18.0-ee698fb"], False, _DRIVER),
        ("unknown", ["1.18.0-x"], False, _DRIVER),
        (None, ["1.18.0-x", "1.19.0-y"], False, None),
        (None, [None], False, None),
        # The software of this machine does not describe the simulated one.
        (None, ["1.18.0"], True, None),
    ],
    ids=["plugin", "driver", "invalid plugin", "different drivers", "unknown", "simulated"],
)
def test_release(
    plugin: str | None, drivers: list[str | None], simulated: bool, expected: SynapseVersion | None
) -> None:
    devices = [HPUDevice(index=0, driver_version=each, simulated=simulated, source="sysfs") for each in drivers]

    assert find(plugin, devices) == expected


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("1.18.0-ee698fb", "1.18.0"), ("1.24.1", "1.24.1"), ("1.18", None), ("ee698fb", None), (None, None)],
)
def test_driver_release(driver: str | None, expected: str | None) -> None:
    assert driver_release(driver) == (expected and Version(expected))
