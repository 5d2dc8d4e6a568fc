"""Tests of devices in sysfs."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_core.discovery import HPUDevice, SourceResult, _sysfs

_GIB = 1024**3

Add = Callable[..., Path]


Find = Callable[[], SourceResult]


@pytest.fixture
def find(classes: Path, nodes: Path) -> Find:
    """Search the folders that the other fixtures fill."""
    return functools.partial(_sysfs.find, classes, nodes)


def test_no_device_class(find: Find) -> None:
    result = find()

    assert result.devices == ()
    assert result.message == "accel: no such folder; habanalabs: no such folder"


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
    ("device", "device_type", "generation"),
    [("0x1000", "GAUDI", "GAUDI"), ("0x1010", "GAUDI SEC", "GAUDI"), ("0x1060", "GAUDI3", "GAUDI3")],
)
def test_other_generations(find: Find, add_gaudi: Add, device: str, device_type: str, generation: str) -> None:
    add_gaudi(0, "0000:43:00.0", device=device, device_type=device_type)

    assert find().devices[0].generation == generation


def test_unknown_generation(find: Find, add_gaudi: Add) -> None:
    add_gaudi(0, "0000:43:00.0", device_type="GAUDI9")
    device = find().devices[0]

    assert (device.generation, device.memory_bytes) == (None, None)


def test_missing_module_id_is_unknown(find: Find, add_gaudi: Add) -> None:
    """Older kernels have no such attribute."""
    add_gaudi(0, "0000:43:00.0")

    assert find().devices[0].module_id is None


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


def test_other_vendors_are_ignored(find: Find, add_gaudi: Add, add_device: Add) -> None:
    """Devices of other vendors share the class `accel`."""
    add_device("accel/accel0", "0000:00:0b.0", vendor="0x8086", device="0x1020", status="Operational")
    add_gaudi(1, "0000:43:00.0")
    result = find()

    assert [device.pci_address for device in result.devices] == ["0000:43:00.0"]
    assert result.message == "1 of 2 devices have PCI vendor 0x1da3"


def test_message_counts_other_vendors(find: Find, add_device: Add) -> None:
    add_device("accel/accel0", "0000:00:0b.0", vendor="0x8086")
    result = find()

    assert result.devices == ()
    assert "0 of 1 devices have PCI vendor 0x1da3" in result.message


def test_devices_are_in_numeric_order(find: Find, add_gaudi: Add) -> None:
    for number in (10, 2, 3):
        add_gaudi(number, f"0000:{number:02}:00.0")

    assert [(device.index, device.pci_address) for device in find().devices] == [
        (0, "0000:02:00.0"),
        (1, "0000:03:00.0"),
        (2, "0000:10:00.0"),
    ]


def test_device_in_reset_is_listed(find: Find, add_gaudi: Add) -> None:
    add_gaudi(0, "0000:43:00.0", status="In reset")

    assert [device.status for device in find().devices] == ["In reset"]


def test_device_without_node(find: Find, nodes: Path, add_gaudi: Add) -> None:
    """A container has the nodes of its own devices only."""
    add_gaudi(0, "0000:43:00.0")
    add_gaudi(1, "0000:44:00.0")
    (nodes / "accel" / "accel1").unlink()

    assert [device.status for device in find().devices] == ["Operational", "No device node"]


def test_status_of_driver_precedes_missing_node(find: Find, nodes: Path, add_gaudi: Add) -> None:
    add_gaudi(0, "0000:43:00.0", status="In reset")
    (nodes / "accel" / "accel0").unlink()

    assert [device.status for device in find().devices] == ["In reset"]


def test_address_falls_back_to_link(find: Find, add_gaudi: Add) -> None:
    (add_gaudi(0, "0000:43:00.0") / "pci_addr").unlink()

    assert find().devices[0].pci_address == "0000:43:00.0"


def test_unreadable_status_is_unknown(find: Find, add_gaudi: Add) -> None:
    status = add_gaudi(0, "0000:43:00.0") / "status"
    status.unlink()
    status.mkdir()

    assert [device.status for device in find().devices] == ["Unknown"]


def test_device_that_is_a_loop_of_links_is_ignored(find: Find, classes: Path) -> None:
    (classes / "accel" / "accel0").mkdir(parents=True)
    (classes / "accel" / "accel0" / "device").symlink_to("device")

    assert find().devices == ()


def test_unreadable_class(find: Find, classes: Path) -> None:
    classes.mkdir(parents=True)
    (classes / "accel").touch()

    assert "accel: cannot be read (Not a directory)" in find().message
