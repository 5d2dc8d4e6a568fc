"""Tests of reading the generation."""

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
