"""What counts as a sign of a card."""

from pathlib import Path

import pytest

from hpu_core import bridge
from hpu_core.registration import _presence


@pytest.fixture(autouse=True)
def bare_machine(environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without card, simulator and bridge, whose device classes are in `tmp_path`."""
    monkeypatch.delenv("HPU_SIM_DEVICES", raising=False)
    monkeypatch.setattr(_presence, "_CLASSES", (tmp_path / "accel", tmp_path / "habanalabs"))
    monkeypatch.setattr(bridge, "is_installed", lambda: False)


def _add_card(device: Path, vendor: str) -> None:
    (device / "device").mkdir(parents=True)
    (device / "device" / "vendor").write_text(f"{vendor}\n")


def test_a_machine_without_anything_has_no_card() -> None:
    """Nothing is assumed."""
    assert not _presence.is_likely()


@pytest.mark.parametrize("place", ["accel/accel0", "habanalabs/hl0"])
def test_a_device_of_the_vendor_is_a_card(place: str, tmp_path: Path) -> None:
    """Both drivers' classes are looked at."""
    _add_card(tmp_path / place, "0x1da3")

    assert _presence.is_likely()


def test_a_device_of_another_vendor_is_no_card(tmp_path: Path) -> None:
    """Laptops have other accelerators in the same class."""
    _add_card(tmp_path / "accel" / "accel0", "0x8086")

    assert not _presence.is_likely()


def test_a_device_that_does_not_tell_its_vendor_is_no_card(tmp_path: Path) -> None:
    """An unreadable device is passed over."""
    (tmp_path / "accel" / "accel0").mkdir(parents=True)

    assert not _presence.is_likely()


def test_a_simulator_that_is_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """HPU_SIM_DEVICES is what switches it on."""
    monkeypatch.setenv("HPU_SIM_DEVICES", "2")

    assert _presence.is_likely()


def test_a_bridge_that_is_installed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image with the bridge is made for cards, and a running simulator has put its own there."""
    monkeypatch.setattr(bridge, "is_installed", lambda: True)

    assert _presence.is_likely()
