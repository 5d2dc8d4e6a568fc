"""What is generated from compat.toml, and what the generator refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import constraints
import pytest
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = constraints.load()
RELEASES = [row["release"] for row in TABLE["release"]]


def requirements(text: str) -> dict[str, Requirement]:
    """Parse a constraints file."""
    lines = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
    return {requirement.name: requirement for requirement in lines}


def row(**changes: Any) -> dict[str, Any]:
    """Give a row that is right, with changes."""
    return {"release": "1.99.0", "torch": "2.0.1", "sources": {"torch": "SM"}} | changes


@pytest.mark.parametrize("release", TABLE["release"], ids=RELEASES)
def test_gaudi_constraints_never_name_torch(release: dict[str, Any]) -> None:
    """On a Gaudi image torch is the vendor's own build, which no constraint of ours may replace."""
    written = requirements(constraints.gaudi_constraints(TABLE, release))

    assert "torch" not in written


@pytest.mark.parametrize("release", TABLE["release"], ids=RELEASES)
@pytest.mark.parametrize("name", ["lightning", "pytorch-lightning"])
@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_compromised_releases_are_refused_everywhere(release: dict[str, Any], name: str, version: str) -> None:
    """No row admits a compromised Lightning, whether its range is known or not."""
    written = requirements(constraints.gaudi_constraints(TABLE, release))

    assert version not in written[name].specifier


def test_known_range_is_kept() -> None:
    """A row's Lightning range stands in its file as the sources have it."""
    release = next(row for row in TABLE["release"] if row["release"] == "1.11.0")

    written = requirements(constraints.sim_constraints(TABLE, release))

    assert str(written["lightning"].specifier) == "<2.1,>=2.0.4"


@pytest.mark.parametrize(("torch", "expected"), [("2.2.2", ["numpy<2"]), ("2.3.1", [])])
def test_torch_brings_its_companions(torch: str, expected: list[str]) -> None:
    """A torch that was compiled against NumPy 1 is constrained to it, a newer one is not."""
    lines = constraints.companions(TABLE, torch)

    assert [line for line in lines if not line.startswith("#")] == expected


@pytest.mark.parametrize(("lightning", "pinned"), [("2.3.3", "setuptools<81"), ("2.4.0", "setuptools==")])
def test_lightning_brings_its_companions(lightning: str, pinned: str) -> None:
    """What an old Lightning needs takes the place of the default's pin."""
    lines = constraints.varied_constraints(TABLE, lightning=lightning).splitlines()

    (setuptools,) = (line for line in lines if line.startswith("setuptools"))
    assert setuptools.startswith(pinned)
    assert f"lightning=={lightning}" in lines


@pytest.mark.parametrize("write", [constraints.sim_constraints, constraints.gaudi_constraints])
def test_a_range_brings_what_any_of_it_needs(write: Callable[..., str]) -> None:
    """A release with a Lightning that imports pkg_resources has a setuptools in which it is, cards or not."""
    release = next(row for row in TABLE["release"] if row["release"] == "1.11.0")

    assert {"setuptools<81", "packaging<25", "rich<15"} <= set(write(TABLE, release).splitlines())


def test_an_unknown_range_brings_nothing() -> None:
    """What would be needed by a Lightning that nobody named is no constraint."""
    assert constraints.known_lightnings(TABLE, row()) == []


def test_unknown_facts_are_null() -> None:
    """The packages' data hold every fact of every release, null where no source names it."""
    record = next(
        record for record in json.loads(constraints.release_data(TABLE))["releases"] if record["release"] == "1.24.2"
    )

    assert record["torch"] is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(torch=2.0), "`torch` must be a str, got 2.0; leave out what is unknown"),
        (row(tourch="2.0.1"), "unknown keys ['tourch']"),
        (row(mode="lazy"), "these differ: ['mode']"),
        (row(sources={"torch": "rumour"}), "torch has the sources ['rumour'], which [sources] lacks"),
        (row(mode="quick", sources={"torch": "SM", "mode": "SM"}), "`mode` must be of ['eager', 'lazy'], got 'quick'"),
    ],
)
def test_bad_rows_are_refused(bad: dict[str, Any], message: str) -> None:
    """A row that breaks a rule of the table's header is an error that names the row, the rule and the value."""
    with pytest.raises(constraints.TableError, match=r"release 1\.99\.0: ") as caught:
        constraints.check_row(bad, {"SM"})

    assert message in str(caught.value)


def test_check_finds_a_stale_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--check` fails while a generated file differs, and passes once the files are written."""
    monkeypatch.setattr(constraints, "ROOT", tmp_path)
    monkeypatch.setattr(constraints, "outputs", lambda _: {tmp_path / "constraints" / "default.txt": "torch\n"})

    before = constraints.main(["--check"])
    constraints.main([])
    after = constraints.main(["--check"])

    assert (before, after) == (1, 0)


def test_orphans_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A constraints file whose release has left the table goes, too."""
    orphan = tmp_path / "constraints" / "sim-0.9.txt"
    orphan.parent.mkdir()
    orphan.touch()
    monkeypatch.setattr(constraints, "ROOT", tmp_path)
    monkeypatch.setattr(constraints, "outputs", lambda _: {})

    constraints.main([])

    assert not orphan.exists()
