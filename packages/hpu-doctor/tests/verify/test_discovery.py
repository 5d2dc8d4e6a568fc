"""Tests of the programs that need a driver, on a made-up machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from hpu_core import bridge
from hpu_doctor.verify import register
from hpu_doctor.verify.assumption import difference, is_expected
from hpu_doctor.verify.register import discovery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Machine:
    """Files of a machine with two cards."""

    def __init__(self, folder: Path) -> None:
        self.sysfs, self.dev = folder / "sys", folder / "dev"
        for index in range(2):
            self.write(index, vendor="0x1da3", device_type="GAUDI2", status="Operational", module_id=str(index))
            self.write(index, pci_addr=f"0000:4{index}:00.0")
            (self.dev / f"accel{index}").parent.mkdir(exist_ok=True)
            (self.dev / f"accel{index}").touch()

    def write(self, index: int, **attributes: str) -> None:
        """Write attributes of a card."""
        folder = self.sysfs / f"accel{index}" / "device"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in attributes.items():
            (folder / name).write_text(f"{value}\n", encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(discovery, "SYSFS", found.sysfs)
    monkeypatch.setattr(discovery, "DEV", found.dev)
    monkeypatch.setattr(bridge, "device_count", lambda: 2)
    return found


def see(name: str) -> object:
    """Return what the program of an assumption sees on the machine."""
    return json.loads(json.dumps(register.find(name).program()))


CHANGES: dict[str, Callable[[Machine], Any]] = {
    "sysfs-describes-cards/as many as the bridge counts": lambda machine: machine.write(
        2, vendor="0x1da3", status="Operational"
    ),
    "sysfs-describes-cards/device_type": lambda machine: machine.write(0, device_type="HL-225"),
    "sysfs-describes-cards/status": lambda machine: machine.write(1, status="OK"),
    "sysfs-describes-cards/a module_id for each (since November 2023)": lambda machine: machine.write(1, module_id="0"),
    "sysfs-describes-cards/pci_addr": lambda machine: machine.write(0, pci_addr="43:00.0"),
    "sysfs-describes-cards/nodes": lambda machine: (machine.dev / "accel1").unlink(),
}


def test_every_program_is_tested() -> None:
    """And each case of a table."""
    assert set(CHANGES) == {
        f"{each.id}/{case}" if case else each.id
        for each in discovery.SUBJECT
        for case in (each.expected if isinstance(each.expected, Mapping) else [""])
    }


@pytest.mark.parametrize("name", [assumption.id for assumption in discovery.SUBJECT])
def test_published_machine(machine: Machine, name: str) -> None:
    seen = see(name)

    assert is_expected(register.find(name).expected, seen), seen


@pytest.mark.parametrize("name", CHANGES)
def test_changed_machine(machine: Machine, name: str) -> None:
    CHANGES[name](machine)
    identifier, _, case = name.partition("/")

    expected, seen = difference(register.find(identifier).expected, see(identifier))

    assert not is_expected(expected, seen), seen
    assert not case or (isinstance(seen, dict) and case in seen)
