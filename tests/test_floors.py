"""The lowest versions that the packages declare, as constraints."""

from __future__ import annotations

from typing import Any

import constraints
import floors
import pytest
from packaging.version import Version


def package(*dependencies: str, **extras: list[str]) -> dict[str, Any]:
    """Give a `[project]` table."""
    return {"dependencies": list(dependencies), "optional-dependencies": extras}


def test_all_packages_have_to_admit_a_version() -> None:
    """They are installed together, with their extras."""
    admitted = floors.declared({"a": package("rich>=13"), "b": package(more=["rich>=14,!=14.1"])})

    assert [str(version) for version in admitted["rich"].filter(map(Version, ["13.0", "14.1", "14.2"]))] == ["14.2"]


def test_packages_of_this_repository_come_from_the_tree() -> None:
    """Nor does what runs the tests have a floor."""
    assert floors.declared({"a": package("b>=0.1", "pytest>=7"), "b": package()}, {"pytest"}) == {}


def test_a_requirement_without_a_floor_is_an_error() -> None:
    """It would admit versions that nobody has tried."""
    with pytest.raises(floors.NoFloorError, match=r"^a requires 'rich<15', which names no lowest version: add >="):
        floors.declared({"a": package("rich<15")})


def test_a_torch_brings_what_it_needs() -> None:
    """But nothing that a package declares itself."""
    lowest = {"torch": Version("2.0.0"), "lightning": Version("2.0.0"), "packaging": Version("23.0")}

    text = floors.lines(constraints.load(), lowest)
    assert text[:3] == ["lightning==2.0.0", "packaging==23.0", "torch==2.0.0"]
    assert text[3:] == ["numpy<2", "lightning-cloud<0.6", "setuptools<81", "rich<15"]
