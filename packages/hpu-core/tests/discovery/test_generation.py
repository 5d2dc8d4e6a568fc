"""Tests of reading the generation from names and ids."""

import pytest

from hpu_core.discovery import _generation


@pytest.mark.parametrize(
    ("device_type", "expected"),
    [
        ("GAUDI", "GAUDI"),
        ("GAUDI SEC", "GAUDI"),
        ("GAUDI2", "GAUDI2"),
        ("GAUDI2B", "GAUDI2"),
        ("GAUDI HL2000M", "GAUDI"),
        ("GAUDI HL2000M SEC", "GAUDI"),
        ("GAUDI2E", "GAUDI2"),
        ("GAUDI2 HL-288", "GAUDI2"),
        ("GAUDI2D HL-288", "GAUDI2"),
        ("GAUDI3E", "GAUDI3"),
        ("GAUDI3 HL-338", "GAUDI3"),
        ("GAUDI3E HL-338", "GAUDI3"),
        ("GAUDI2C", "GAUDI2"),
        ("GAUDI2D", "GAUDI2"),
        ("GAUDI3", "GAUDI3"),
        ("GAUDI4", None),
        ("GOYA", None),
        ("gaudi2", None),
        ("", None),
    ],
)
def test_device_type(device_type: str, expected: str | None) -> None:
    assert _generation.from_device_type(device_type) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0x1000, "GAUDI"),
        (0x1010, "GAUDI"),
        (0x1001, "GAUDI"),
        (0x1DA31001, "GAUDI"),
        (0x1011, "GAUDI"),
        (0x1020, "GAUDI2"),
        (0x1021, "GAUDI2"),
        (0x1060, "GAUDI3"),
        (0x1063, "GAUDI3"),
        (0x1DA31020, "GAUDI2"),
        (0x80861020, None),
        (0x1040, None),
        (0, None),
    ],
)
def test_pci_id(number: int, expected: str | None) -> None:
    """The id is valid alone and with Habana's vendor id, but not with that of another vendor."""
    assert _generation.from_pci_id(number) == expected
