"""The public functions answer alike about the same cards."""

from collections.abc import Callable

import pytest
from packaging.version import Version

from hpu_core import bridge, discovery
from hpu_core.discovery import Finding, HPUDevice, NoHPUError, Survey, VisibleModulesError

Here = Callable[..., None]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """Makes the cards given the ones of this machine, whatever it really has."""
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)

    def put(*devices: HPUDevice) -> None:
        findings = (Finding(source="sysfs", place="/sys/class/accel", found="no such folder"),)
        monkeypatch.setattr(discovery, "look", lambda: Survey(devices=devices, findings=findings))

    put()
    return put


_WORKING = HPUDevice(index=0, module_id=0, generation="GAUDI2", status="Operational", source="sysfs")
_BROKEN = HPUDevice(index=1, module_id=1, generation="GAUDI2", status="Malfunction", source="sysfs")


def test_a_machine_with_cards(here: Here) -> None:
    """Broken cards are listed and not counted."""
    here(_WORKING, _BROKEN)

    assert discovery.devices() == (_WORKING, _BROKEN)
    assert discovery.device_count() == 1
    assert discovery.auto_device_count() == 1
    assert discovery.is_available() is True
    assert discovery.device_name() == "GAUDI2"
    assert discovery.parse_devices(-1) == 1


def test_a_machine_without_cards(here: Here) -> None:
    """No card is zero cards, and never a guess."""
    here()

    assert discovery.devices() == ()
    assert discovery.device_count() == 0
    assert discovery.is_available() is False
    assert discovery.device_name() is None


@pytest.mark.parametrize("function", [discovery.auto_device_count, lambda: discovery.parse_devices("auto")])
def test_every_card_of_a_machine_without_cards(here: Here, function: Callable[[], int]) -> None:
    """Asking for every card where there is none is an error that says where was looked."""
    here()

    with pytest.raises(NoHPUError, match=r"(?s)no Gaudi card was found.*/sys/class/accel: no such folder"):
        function()


def test_a_machine_with_broken_cards(here: Here) -> None:
    """Cards that do not work are not available and have no name to train on."""
    here(_BROKEN)

    assert discovery.is_available() is False
    assert discovery.device_name() is None


def test_allowed_modules(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """HABANA_VISIBLE_MODULES limits what is counted and not what is listed."""
    here(_WORKING, HPUDevice(index=1, module_id=1, status="Operational", source="sysfs"))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")

    assert discovery.device_count() == 1
    assert len(discovery.devices()) == 2


@pytest.mark.parametrize("value", ["0,x", "", "1,1", "-1", "0,1,2,3,4,5,6,7,8", "5"])
def test_a_variable_that_cannot_be_honoured(here: Here, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """What counts cards refuses the variable; what tells whether there is one does not raise."""
    here(_WORKING)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", value)

    for function in (discovery.device_count, discovery.auto_device_count, lambda: discovery.check_devices(1)):
        with pytest.raises(VisibleModulesError, match="HABANA_VISIBLE_MODULES"):
            function()
    assert discovery.is_available() is True


def test_a_malformed_variable_without_cards(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A malformed variable does not make a card available."""
    here()
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,x")

    assert discovery.is_available() is False


def test_no_allowed_card_works(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the only card allowed is broken, none is available."""
    here(_WORKING, _BROKEN)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "1")

    assert discovery.is_available() is False


def test_synapse_version(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release is a version that can be compared."""
    here()
    monkeypatch.setattr(bridge, "plugin_version", lambda: "1.24.1.482")
    version = discovery.synapse_version()

    assert version is not None
    assert version >= Version("1.24")


def test_look_asks_every_source() -> None:
    """The real sources answer on this machine, whatever it has."""
    found = discovery.look()

    assert found.findings
    assert isinstance(found.devices, tuple)
