"""Fixtures for a fake sysfs and /dev."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Stand-in for /sys/class, empty at first."""
    return tmp_path / "sys" / "class"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Stand-in for /dev."""
    return tmp_path / "dev"


@pytest.fixture
def add_device(tmp_path: Path, classes: Path) -> Callable[..., Path]:
    """Add a device as a class entry such as "accel/accel0", and return the folder of its attributes."""

    def add(entry: str, address: str, **attributes: str) -> Path:
        device = tmp_path / "sys" / "devices" / address
        device.mkdir(parents=True)
        for name, text in attributes.items():
            (device / name).write_text(f"{text}\n")
        folder = classes / entry
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)
        return device

    return add


@pytest.fixture
def add_gaudi(nodes: Path, add_device: Callable[..., Path]) -> Callable[..., Path]:
    """Add an operational Gaudi 2 to the class `accel` and to /dev, and return the folder of its attributes."""

    def add(number: int, address: str, **attributes: str) -> Path:
        working = {
            "vendor": "0x1da3",
            "device": "0x1020",
            "device_type": "GAUDI2",
            "status": "Operational",
            "pci_addr": address,
        }
        node = nodes / "accel" / f"accel{number}"
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
        return add_device(f"accel/accel{number}", address, **{**working, **attributes})

    return add
