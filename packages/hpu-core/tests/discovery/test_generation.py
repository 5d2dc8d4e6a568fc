"""Tests of reading the generation."""

import pytest

from hpu_core.discovery import _generation

_TYPES: dict[str | None, tuple[str, ...]] = {
    "GAUDI": ("GAUDI", "GAUDI SEC", "GAUDI HL2000M", "GAUDI HL2000M SEC"),
    "GAUDI2": ("GAUDI2", "GAUDI2B", "GAUDI2C", "GAUDI2D", "GAUDI2E", "GAUDI2 HL-288", "GAUDI2D HL-288"),
    "GAUDI3": ("GAUDI3", "GAUDI3E", "GAUDI3 HL-338", "GAUDI3E HL-338"),
    None: ("GAUDI4", "GOYA", "gaudi2", ""),
}


@pytest.mark.parametrize("generation", _TYPES)
def test_types(generation: str | None) -> None:
    assert {name: _generation.from_device_type(name) for name in _TYPES[generation]} == dict.fromkeys(
        _TYPES[generation], generation
    )
