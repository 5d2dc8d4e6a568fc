"""Tests of the data of a device and of the parsers for its fields."""

import pytest

from hpu_core.discovery import HPUDevice, _device


@pytest.mark.parametrize(
    ("status", "expected"),
    [("Operational", True), ("In reset", False), ("Malfunction", False), ("Unknown", False)],
)
def test_only_status_operational_is_operational(status: str, expected: bool) -> None:
    assert HPUDevice(index=0, status=status, source="sysfs").is_operational is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:43:00.0", "0000:43:00.0"),
        (" 0000:4A:00.0\n", "0000:4a:00.0"),
        ("43:00.0", "0000:43:00.0"),
        ("10000:43:00.0", "10000:43:00.0"),
        ("0000:43:00.8", None),
        ("0000:43:00", None),
        ("", None),
    ],
)
def test_parse_pci_address(text: str, expected: str | None) -> None:
    assert _device.parse_pci_address(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("7\n", 7), ("-1", None), ("", None), ("٣", None), ("9" * 5000, None)])
def test_parse_int(text: str, expected: int | None) -> None:
    assert _device.parse_int(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Operational\n", "Operational"), ("operational", "Operational"), ("In reset", "In reset"), ("  ", "Unknown")],
)
def test_parse_status(text: str, expected: str) -> None:
    assert _device.parse_status(text) == expected


def test_printable_replaces_control_sequences() -> None:
    assert _device.printable("\x1b[31mred\x1b[0m ü\n") == "?[31mred?[0m ?"
