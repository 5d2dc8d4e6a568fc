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


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("HL-205", "GAUDI"),
        ("HL-225", "GAUDI2"),
        ("HL-225H", "GAUDI2"),
        ("HL-288", "GAUDI2"),
        ("HL-325L", "GAUDI3"),
        ("HL-338", "GAUDI3"),
        ("HL-425", None),
        ("HL-2", None),
        ("A100", None),
    ],
)
def test_product_name(product: str, expected: str | None) -> None:
    assert _generation.from_product(product) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Preboot version hl-gaudi-1.18.0-fw-53.1.1-sec-1", "GAUDI"),
        ("Preboot version hl-gaudi2-1.12.1-fw-46.0.5-sec-6", "GAUDI2"),
        ("Preboot version hl-gaudi3-1.24.1-fw-62.0.0-sec-1", "GAUDI3"),
        ("Preboot version hl-gaudi7-1.24.1", None),
        ("hl-1.18.0-fw-53.1.1.1", None),
    ],
)
def test_firmware_version(version: str, expected: str | None) -> None:
    assert _generation.from_firmware(version) == expected
