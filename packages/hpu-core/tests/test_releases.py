"""Tests of the table of SynapseAI releases."""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from hpu_core import releases
from hpu_core.releases import Mismatch, Release

_ROW = Release(
    release="1.24.1",
    torch="2.11.0",
    python=("3.10", "3.12"),
    lightning=">=2.5,<2.6",
    generations=("GAUDI2", "GAUDI3"),
)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the table by rows: `table({"release": "1.2.0"})`."""

    def replace(*rows: dict[str, Any]) -> None:
        parsed = tuple(map(releases._parse_row, rows))
        monkeypatch.setattr(releases, "releases", lambda: parsed)

    return replace


def test_table_can_be_parsed() -> None:
    assert releases.releases()


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


def test_row_matches_its_own_versions() -> None:
    for row in releases.releases():
        python = row.python[0] if row.python else None
        generation = row.generations[0] if row.generations else None

        assert releases.match(row, torch=row.torch, python=python, generation=generation) == ()


def test_row_is_immutable(table: Callable[..., None]) -> None:
    table({"release": "1.2.0", "python": ["3.10"], "date": "2024-02-29", "sources": {"python": "SM"}})
    row = releases.releases()[0]

    assert (row.python, row.date) == (("3.10",), dt.date(2024, 2, 29))
    assert hash(row) == hash(releases.releases()[0])
    with pytest.raises(TypeError):
        row.sources["python"] = "KB"  # type: ignore[index]  # Assigning is what the test is about.


def test_null_is_none(table: Callable[..., None]) -> None:
    table({"release": "1.2.0", "torch": None, "python": None, "date": None, "hmp": None, "sources": {}})

    assert releases.releases()[0] == Release(release="1.2.0")


@pytest.mark.parametrize("version", ["1.2.0", "1.2.0.77", "1.2", Version("1.2.0.77")])
def test_find(table: Callable[..., None], version: str | Version) -> None:
    """A release is found with its build and without."""
    table({"release": "1.2.0"}, {"release": "1.2.1"})

    assert releases.find(version) == Release(release="1.2.0")


@pytest.mark.parametrize("version", ["9" * 5000, "1." * 3000, "", "\u0661"], ids=["digits", "dots", "empty", "arabic"])
def test_find_with_hostile_version(version: str) -> None:
    with pytest.raises(ValueError, match="`version` must be a version such as ") as caught:
        releases.find(version)

    assert len(str(caught.value)) < 200


@given(text=st.text(max_size=20))
def test_find_with_any_text(text: str) -> None:
    try:
        release = releases.find(text)
    except ValueError as error:
        assert "`version` must be a version such as" in str(error)  # noqa: PT017 - either outcome is right.
    else:
        assert release is None or release.release.split(".")[0] in text


@pytest.mark.parametrize("version", ["1.2.2", "9.0.0", "2.1.2"])
def test_find_unknown_release(table: Callable[..., None], version: str) -> None:
    table({"release": "1.2.0"}, {"release": "1.2.1"})

    assert releases.find(version) is None


def test_find_with_invalid_version() -> None:
    with pytest.raises(ValueError, match=r"must be a version such as '1\.24\.1', got 'latest'"):
        releases.find("latest")


@pytest.mark.parametrize(
    "installed",
    [
        {},
        {"torch": "2.11.0"},
        {"torch": "2.11.3+cpu"},
        {"torch": "2.11.0a0+git009b5f6"},
        {"python": "3.10.19"},
        {"python": "3.12.4"},
        {"lightning": "2.5.5"},
        {"lightning": "2.5.1.post0"},
        {"lightning": "2.5.2rc1"},
        {"generation": "GAUDI3"},
    ],
)
def test_matching_versions(installed: dict[str, str]) -> None:
    """Patch releases, Intel's builds and missing values match."""
    assert releases.match(_ROW, **installed) == ()


@pytest.mark.parametrize(
    ("installed", "mismatch"),
    [
        ({"torch": "2.13.0+cpu"}, Mismatch(subject="torch", found="2.13.0+cpu", expected="2.11.0")),
        ({"torch": "2.1.1"}, Mismatch(subject="torch", found="2.1.1", expected="2.11.0")),
        ({"python": "3.11.4"}, Mismatch(subject="python", found="3.11.4", expected="3.10 or 3.12")),
        ({"python": "3.1.4"}, Mismatch(subject="python", found="3.1.4", expected="3.10 or 3.12")),
        ({"lightning": "2.6.6"}, Mismatch(subject="lightning", found="2.6.6", expected=">=2.5,<2.6")),
        ({"generation": "GAUDI"}, Mismatch(subject="generation", found="GAUDI", expected="GAUDI2 or GAUDI3")),
    ],
)
def test_mismatches(installed: dict[str, str], mismatch: Mismatch) -> None:
    assert releases.match(_ROW, **installed) == (mismatch,)


def test_row_without_data_matches_everything() -> None:
    row = Release(release="1.24.2")

    assert releases.match(row, torch="1.0", python="2.7", lightning="0.1", generation="GAUDI") == ()


def test_all_mismatches_are_returned() -> None:
    found = releases.match(_ROW, torch="2.13.0", python="3.13.0", lightning="2.6.6", generation="GAUDI")

    assert [mismatch.subject for mismatch in found] == ["torch", "python", "lightning", "generation"]


def test_match_with_invalid_version() -> None:
    with pytest.raises(ValueError, match="got 'nightly'"):
        releases.match(_ROW, torch="nightly")
