"""The SynapseAI release is found without a card, in a stated order."""

import pytest
from packaging.version import Version

from hpu_core.discovery import HPUDevice
from hpu_core.discovery._synapse import SynapseVersion, driver_release, synapse_release


def _card(driver_version: str | None, *, simulated: bool = False) -> HPUDevice:
    return HPUDevice(index=0, driver_version=driver_version, simulated=simulated, source="sysfs")


def _unknown() -> None:
    return None


def _must_not_be_asked() -> Version:
    pytest.fail("hl-smi was run although the release is known")


def test_the_plugin_comes_first() -> None:
    """The installed bridge tells the release, and no process is started for it."""
    found = synapse_release("1.24.1.482", [_card("1.18.0-ee698fb")], _must_not_be_asked)

    assert found == SynapseVersion(Version("1.24.1.482"), "habana-torch-plugin")


def test_then_hl_smi() -> None:
    """Without the bridge's metadata, hl-smi tells the release."""
    found = synapse_release(None, [_card("1.18.0-ee698fb")], lambda: Version("1.22.0"))

    assert found == SynapseVersion(Version("1.22.0"), "hl-smi")


def test_then_the_driver() -> None:
    """Without both, the driver's version does."""
    assert synapse_release(None, [_card("1.18.0-ee698fb")], _unknown) == SynapseVersion(Version("1.18.0"), "driver")


def test_a_plugin_version_that_is_none() -> None:
    """Metadata that is no version is passed over."""
    assert synapse_release("unknown", [_card("1.18.0-x")], _unknown) == SynapseVersion(Version("1.18.0"), "driver")


def test_drivers_that_disagree() -> None:
    """Cards that report different drivers tell no release."""
    assert synapse_release(None, [_card("1.18.0-x"), _card("1.19.0-y")], _unknown) is None


def test_nothing_tells_it() -> None:
    """Without any of them the release is unknown."""
    assert synapse_release(None, [_card(None)], _unknown) is None


def test_simulated_cards_tell_nothing() -> None:
    """What is installed on a machine says nothing about the release that the simulator plays on it."""
    assert synapse_release(None, [_card("1.18.0", simulated=True)], _must_not_be_asked) is None


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
    """A driver's version tells its release, or nothing."""
    assert driver_release(driver) == expected
