"""Table of the releases."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from hpu_sim.data import releases

_TABLE: dict[str, Any] = json.loads(
    resources.files("hpu_sim.data").joinpath("releases.json").read_text(encoding="utf-8")
)


def test_the_default_is_the_default_of_the_table() -> None:
    assert releases.find().version == _TABLE["default"]


@pytest.mark.parametrize("row", _TABLE["releases"], ids=lambda row: row["release"])
def test_a_row_becomes_a_release(row: dict[str, Any]) -> None:
    """Unknown facts are None, False or eager mode."""
    expected = releases.Release(
        version=row["release"],
        build=row["build"],
        lazy=row["mode"] == "lazy",
        hmp=row.get("hmp") is True,
    )

    assert releases.find(row["release"]) == expected


@pytest.mark.parametrize(("version", "lazy"), [("1.18.0", True), ("1.20.1", True), ("1.21.0", False)])
def test_the_mode_changed_with_1_21(version: str, lazy: bool) -> None:
    """Lazy mode is the default up to 1.20, eager mode from 1.21 on."""
    assert releases.find(version).lazy is lazy


@pytest.mark.parametrize("version", ["", "1.18", "9.9.9", "latest"])
def test_an_unknown_release_is_named(version: str) -> None:
    """The error lists the known releases."""
    with pytest.raises(ValueError, match=r"`release` must be a SynapseAI release .*1\.18\.0.*, got ") as caught:
        releases.find(version)

    assert str(caught.value).endswith(f"got {version!r}")
