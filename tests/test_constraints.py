"""Tests of tools/constraints.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import constraints

if TYPE_CHECKING:
    from pathlib import Path

TABLE = constraints.load()
RELEASES = [row["release"] for row in TABLE["release"]]


def requirements(lines: list[str]) -> dict[str, Requirement]:
    """Return the requirements of a constraints file by name."""
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {requirement.name: requirement for requirement in found}


def row(**changes: Any) -> dict[str, Any]:
    """Return a valid row with changes."""
    return {"release": "1.99.0", "torch": "2.0.1", "sources": {"torch": "SM"}} | changes


@pytest.mark.parametrize("release", TABLE["release"], ids=RELEASES)
def test_constraints_of_a_release(release: dict[str, Any]) -> None:
    """Torch on a Gaudi image is the vendor's own build. The vendor's DeepSpeed is on no index, so nothing satisfies it.

    Every row excludes the unsafe Lightnings, also a row without a known range.
    """
    found = requirements(constraints.release_lines(TABLE, release))

    assert not {"torch", "deepspeed"} & found.keys()
    for name in ("lightning", "pytorch-lightning"):
        assert [version for version in ("2.6.2", "2.6.3") if version in found[name].specifier] == []


@pytest.mark.parametrize(("torch", "expected"), [("2.2.2", ["numpy<2"]), ("2.3.1", [])])
def test_constraints_of_a_torch(torch: str, expected: list[str]) -> None:
    """A torch that was compiled against NumPy 1 requires it."""
    lines = constraints.related_constraints(TABLE, torch)

    assert [line for line in lines if not line.startswith("#")] == expected


@pytest.mark.parametrize(("lightning", "pinned"), [("2.3.3", "setuptools<81"), ("2.4.0", "setuptools==")])
def test_constraints_of_a_lightning(lightning: str, pinned: str) -> None:
    """The requirement of an old Lightning replaces the default pin."""
    lines = constraints.version_lines(TABLE, TABLE["default"]["torch"], lightning)

    (setuptools,) = (line for line in lines if line.startswith("setuptools"))
    assert setuptools.startswith(pinned)
    assert f"lightning=={lightning}" in lines


def test_releases_with_equal_constraints_share_a_file() -> None:
    files = constraints.release_files(TABLE)

    assert sorted(release for releases in files.values() for release in releases) == sorted(RELEASES)
    assert constraints.file_of(TABLE, "1.12.1") == constraints.file_of(TABLE, "1.12.0")
    assert constraints.file_of(TABLE, "1.24.2") == "constraints/gaudi.txt"


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("1.13.0", []),
        ("1.15.2", []),
        ("1.16.2", []),
        ("1.17.0", ["FSDP"]),
        ("1.21.1", ["FSDP"]),
        ("1.22.0", ["FSDP"]),
        ("1.23.0", ["FSDP", "FSDP2"]),
        ("1.24.1", ["FSDP", "FSDP2"]),
    ],
)
def test_sharding_of_a_row(release: str, expected: list[str]) -> None:
    assert constraints.sharding(TABLE, TABLE["release"][RELEASES.index(release)]) == expected


def test_matrix_of_the_workflow() -> None:
    """It runs the releases of the table, each on the newest Python of its sources."""
    workflow = (constraints.ROOT / ".github" / "workflows" / "matrix.yml").read_text(encoding="utf-8")
    rows = {row["release"]: row for row in TABLE["release"]}
    newest = {release: max(map(Version, rows[release]["python"])) for release in TABLE["matrix"]["releases"]}

    found = re.findall(r'release: (\S+), python: "(\S+)"', workflow)
    assert {release: Version(python) for release, python in found} == newest


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(torch=2.0), "`torch` must be a str, got 2.0; leave out what is unknown"),
        (row(tourch="2.0.1"), "each with a source; not ['tourch']"),
        (row(mode="lazy"), "not ['mode']"),
        (row(sources={"torch": "rumour"}), "torch has the sources ['rumour'], which [sources] lacks"),
        (row(mode="quick", sources={"torch": "SM", "mode": "SM"}), "`mode` must be of ['eager', 'lazy'], got 'quick'"),
    ],
)
def test_invalid_row_is_an_error(bad: dict[str, Any], message: str) -> None:
    """The error names the row, the rule and the value."""
    with pytest.raises(constraints.TableError, match=r"release 1\.99\.0: ") as info:
        constraints.check_row(bad, {"SM"})

    assert message in str(info.value)


def test_check_finds_a_stale_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--check` fails while a generated file differs, and passes after the files are written."""
    monkeypatch.setattr(constraints, "ROOT", tmp_path)
    monkeypatch.setattr(constraints, "outputs", lambda _: {tmp_path / "constraints" / "default.txt": "torch\n"})

    before = constraints.main(["--check"])
    constraints.main([])
    after = constraints.main(["--check"])

    assert (before, after) == (1, 0)


def test_unused_file_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The constraints of a release that is not in the table any more are deleted."""
    unused = tmp_path / "constraints" / "gaudi-0.9.txt"
    unused.parent.mkdir()
    unused.touch()
    monkeypatch.setattr(constraints, "ROOT", tmp_path)
    monkeypatch.setattr(constraints, "outputs", lambda _: {})

    constraints.main([])

    assert not unused.exists()
