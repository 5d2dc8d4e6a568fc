"""Tests of the table of SynapseAI releases."""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest
from packaging.version import Version

from hpu_core import releases
from hpu_core.releases import Release


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the table by rows: `table({"release": "1.2.0"})`."""

    def replace(*rows: dict[str, Any]) -> None:
        parsed = tuple(map(releases._parse_row, rows))
        monkeypatch.setattr(releases, "releases", lambda: parsed)

    return replace


def test_releases_are_sorted() -> None:
    versions = [Version(row.release) for row in releases.releases()]

    assert versions == sorted(set(versions))


@pytest.mark.parametrize("row", releases.releases(), ids=lambda row: row.release)
def test_row_is_valid(row: Release) -> None:
    """Values have the right form, and only known values have sources."""
    assert row.build is None or row.build.startswith(f"{row.release}.")
    assert row.date is None or isinstance(row.date, dt.date)
    assert row.mode in {"lazy", "eager", None}
    assert {"GAUDI", "GAUDI2", "GAUDI3"}.issuperset(row.generations or ())
    assert all(re.fullmatch(r"3\.[0-9]+", version) for version in row.python or ())
    assert {name for name in row.sources if getattr(row, name) is None} == set()


def test_row_is_immutable(table: Callable[..., None]) -> None:
    table({"release": "1.2.0", "python": ["3.10"], "date": "2024-02-29", "sources": {"python": "SM"}})
    row = releases.releases()[0]

    assert (row.python, row.date) == (("3.10",), dt.date(2024, 2, 29))
    assert hash(row) == hash(releases.releases()[0])
    with pytest.raises(TypeError):
        row.sources["python"] = "KB"  # type: ignore[index]  # Assigning is what the test is about.


@pytest.mark.parametrize("version", ["1.2.0", "1.2.0.77", "1.2", Version("1.2.0.77")])
def test_find(table: Callable[..., None], version: str | Version) -> None:
    """A release is found with its build and without."""
    table({"release": "1.2.0"}, {"release": "1.2.1"})

    assert releases.find(version) == Release(release="1.2.0")


@pytest.mark.parametrize("version", ["1.2.2", "9.0.0", "2.1.2"])
def test_find_unknown_release(table: Callable[..., None], version: str) -> None:
    table({"release": "1.2.0"}, {"release": "1.2.1"})

    assert releases.find(version) is None


def test_find_with_invalid_version() -> None:
    with pytest.raises(ValueError, match=r"must be a version such as '1\.24\.1', got 'latest'"):
        releases.find("latest")
