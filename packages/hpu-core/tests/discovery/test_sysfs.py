"""Tests of devices in sysfs."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_core.discovery import HPUDevice, SourceResult, _sysfs

Add = Callable[..., Path]
Find = Callable[[], SourceResult]


@pytest.fixture
def find(classes: Path, nodes: Path) -> Find:
    """Search the folders that the other fixtures fill."""
    return functools.partial(_sysfs.find, classes, nodes)


def test_no_device_class(find: Find) -> None:
    assert (find().devices, find().message) == ((), "accel: no such folder; habanalabs: no such folder")


def test_gaudi_2_with_current_driver(find: Find, add_gaudi: Add) -> None:
    add_gaudi(0, "0000:43:00.0", module_id="5", driver_ver="1.18.0-ee698fb")

    assert find().devices == (
        HPUDevice(
            index=0,
            module_id=5,
            pci_address="0000:43:00.0",
            generation="GAUDI2",
            status="Operational",
            driver_version="1.18.0-ee698fb",
            source="sysfs",
        ),
    )


@pytest.mark.parametrize(
    ("attributes", "field", "expected"),
    [
        ({"device_type": "GAUDI"}, "generation", "GAUDI"),
        ({"device_type": "GAUDI SEC"}, "generation", "GAUDI"),
        ({"device_type": "GAUDI3"}, "generation", "GAUDI3"),
        ({"device_type": "GAUDI9"}, "generation", None),
        # Older kernels have no such attribute.
        ({}, "module_id", None),
        ({"module_id": "-1"}, "module_id", None),
        ({"module_id": "9" * 5000}, "module_id", None),
        ({"status": "In reset"}, "status", "In reset"),
        ({"status": "operational"}, "status", "Operational"),
        ({"status": " "}, "status", "Unknown"),
        ({"pci_addr": "4A:00.0"}, "pci_address", "0000:4a:00.0"),
        ({"pci_addr": "10000:43:00.0"}, "pci_address", "10000:43:00.0"),
        # The link has the address as well.
        ({"pci_addr": "0000:43:00.8"}, "pci_address", "0000:43:00.0"),
        ({"driver_ver": "\x1b[31mred\u00fc"}, "driver_version", "?[31mred?"),
    ],
)
def test_attribute(attributes: dict[str, str], field: str, expected: object, find: Find, add_gaudi: Add) -> None:
    add_gaudi(0, "0000:43:00.0", **attributes)

    assert getattr(find().devices[0], field) == expected


def test_older_driver(find: Find, classes: Path, nodes: Path, add_device: Add) -> None:
    """The class of the older driver is read, without its control nodes."""
    nodes.mkdir()
    (nodes / "hl0").touch()
    attributes = {"vendor": "0x1da3", "device": "0x1000"}
    add_device("habanalabs/hl0", "0000:43:00.0", **attributes)
    for name, text in {"device_type": "GAUDI", "status": "Operational", "pci_addr": "0000:43:00.0"}.items():
        (classes / "habanalabs" / "hl0" / name).write_text(text)
    add_device("habanalabs/hl_controlD0", "0000:44:00.0", **attributes)

    assert [(device.generation, device.is_operational) for device in find().devices] == [("GAUDI", True)]


def test_other_vendors_are_ignored_and_counted(find: Find, add_gaudi: Add, add_device: Add) -> None:
    """Devices of other vendors share the class `accel`."""
    add_device("accel/accel0", "0000:00:0b.0", vendor="0x8086", device="0x1020", status="Operational")
    before = find()
    add_gaudi(1, "0000:43:00.0")

    assert before.devices == ()
    assert "0 of 1 devices have PCI vendor 0x1da3" in before.message
    assert [device.pci_address for device in find().devices] == ["0000:43:00.0"]
    assert find().message == "1 of 2 devices have PCI vendor 0x1da3"


def test_devices_are_in_numeric_order(find: Find, add_gaudi: Add) -> None:
    for number in (10, 2, 3):
        add_gaudi(number, f"0000:{number:02}:00.0")

    assert [(device.index, device.pci_address) for device in find().devices] == [
        (0, "0000:02:00.0"),
        (1, "0000:03:00.0"),
        (2, "0000:10:00.0"),
    ]


def test_device_without_node(find: Find, nodes: Path, add_gaudi: Add) -> None:
    """A container has the nodes of its own devices only. The status of the driver precedes."""
    add_gaudi(0, "0000:43:00.0")
    for number, status in ((1, "Operational"), (2, "In reset")):
        add_gaudi(number, f"0000:4{number + 3}:00.0", status=status)
        (nodes / "accel" / f"accel{number}").unlink()

    assert [device.status for device in find().devices] == ["Operational", "No device node", "In reset"]


def test_unreadable_files(find: Find, classes: Path, add_gaudi: Add) -> None:
    """A loop of links is no device."""
    status = add_gaudi(0, "0000:43:00.0") / "status"
    status.unlink()
    status.mkdir()
    (classes / "accel" / "accel1").mkdir(parents=True)
    (classes / "accel" / "accel1" / "device").symlink_to("device")
    (classes / "habanalabs").touch()

    assert [device.status for device in find().devices] == ["Unknown"]
    (classes / "accel").rename(classes / "moved")
    assert find().message == "accel: no such folder; habanalabs: cannot be read (Not a directory)"
