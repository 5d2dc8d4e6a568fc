"""Tests of the fast checks for a device."""

from pathlib import Path

import pytest

import _hpu_core_probe


@pytest.fixture(autouse=True)
def bare_machine(environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without device, simulator and bridge, whose device classes are in `tmp_path`."""
    monkeypatch.delenv("HPU_SIM_DEVICES", raising=False)
    monkeypatch.setattr(_hpu_core_probe, "_SYSFS_CLASSES", (str(tmp_path / "accel"), str(tmp_path / "habanalabs")))
    monkeypatch.setattr(_hpu_core_probe, "has_bridge", lambda: False)


def _add_device(device: Path, vendor: str) -> None:
    (device / "device").mkdir(parents=True)
    (device / "device" / "vendor").write_text(f"{vendor}\n")


def test_bare_machine_has_no_device() -> None:
    assert not _hpu_core_probe.maybe_has_hpu()


@pytest.mark.parametrize("path", ["accel/accel0", "habanalabs/hl0"])
def test_gaudi_in_sysfs_is_found(path: str, tmp_path: Path) -> None:
    _add_device(tmp_path / path, "0x1da3")

    assert _hpu_core_probe.maybe_has_hpu()


def test_device_of_another_vendor_is_ignored(tmp_path: Path) -> None:
    """Neural processors of laptops are in the class `accel`, too."""
    _add_device(tmp_path / "accel" / "accel0", "0x8086")

    assert not _hpu_core_probe.maybe_has_hpu()


def test_device_without_vendor_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "accel" / "accel0").mkdir(parents=True)

    assert not _hpu_core_probe.maybe_has_hpu()


def test_simulator_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_SIM_DEVICES", "2")

    assert _hpu_core_probe.maybe_has_hpu()


def test_installed_bridge_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images with the bridge are made for Gaudi, and a running simulator provides a bridge as well."""
    monkeypatch.setattr(_hpu_core_probe, "has_bridge", lambda: True)

    assert _hpu_core_probe.maybe_has_hpu()
