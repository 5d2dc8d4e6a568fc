"""The SynapseAI releases: which torch, Python, Lightning and cards belong to each.

The table is `releases.json` beside this module, which is generated from the repository's compat.toml. None stands for
what no source tells; it never means "none".
"""

import datetime as dt
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

Subject = Literal["torch", "python", "lightning", "generation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One row of the table.

    Attributes:
        release: Such as "1.24.1".
        build: Such as "1.24.1.482", the version that the packages of this release carry.
        date: When that build was published.
        torch: The PyTorch release that the bridge is built for, such as "2.11.0".
        python: The Python releases that it is built for, such as ("3.10", "3.12").
        lightning: The Lightning releases named for it, as a version specifier.
        lightning_habana: The releases of the archived lightning-habana named for it.
        deepspeed: What the vendor's DeepSpeed fork calls itself.
        deepspeed_ref: The branch of that fork.
        hmp: Whether the bridge still has `hpex.hmp`.
        mode: The bridge's mode where PT_HPU_LAZY_MODE is not set, "lazy" or "eager".
        generations: The generations that it supports.
        sources: Which sources name each fact, by the fact; compat.toml explains their codes.
    """

    release: str
    build: str | None = None
    date: dt.date | None = None
    torch: str | None = None
    python: tuple[str, ...] | None = None
    lightning: str | None = None
    lightning_habana: tuple[str, ...] | None = None
    deepspeed: str | None = None
    deepspeed_ref: str | None = None
    hmp: bool | None = None
    mode: Literal["lazy", "eager"] | None = None
    generations: tuple[str, ...] | None = None
    # Left out of the hash, since a mapping has none.
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Something installed that a release is not known to go with.

    Attributes:
        subject: What it is.
        found: What is installed.
        expected: What the release goes with, for people to read.
    """

    subject: Subject
    found: str
    expected: str


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return every release of the table, oldest version first."""
    return tuple(_release(row) for row in _table()["releases"])


def default() -> Release:
    """Return the release that development runs on and that the simulator plays unless told otherwise.

    Raises:
        LookupError: The table has no row for it.
    """
    name = _table()["default"]
    release = find(name)
    if release is None:
        raise LookupError(f"releases.json must have a row for its default release {name!r}")
    return release


def find(version: str | Version) -> Release | None:
    """Return the row of a release.

    Args:
        version: The release, with its build ("1.24.1.482") or without ("1.24.1").

    Returns:
        The row, None for a release that is not in the table.

    Raises:
        ValueError: `version` is no version.
    """
    wanted = _first_parts(version, 3)
    return next((row for row in releases() if _first_parts(row.release, 3) == wanted), None)


def match(
    release: Release,
    *,
    torch: str | None = None,
    python: str | None = None,
    lightning: str | None = None,
    generation: str | None = None,
) -> tuple[Mismatch, ...]:
    """Compare what is installed with a release. What is not given, or not known of the release, always matches.

    Args:
        release: The row to compare with.
        torch: `torch.__version__`. Its first two parts count, as they do for the bridge, which cannot be imported into
            another torch; the vendor's own builds have names such as "2.11.0a0+git009b5f6".
        python: Such as "3.12.4". Its first two parts count.
        lightning: The version of `lightning` or of `pytorch_lightning`.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".

    Returns:
        What does not match, in the order of the arguments.

    Raises:
        ValueError: An argument that must be a version is none.
    """
    mismatches = []
    if torch and release.torch and _first_parts(torch, 2) != _first_parts(release.torch, 2):
        mismatches.append(Mismatch(subject="torch", found=torch, expected=release.torch))
    if (
        python
        and release.python
        and _first_parts(python, 2) not in {_first_parts(known, 2) for known in release.python}
    ):
        mismatches.append(Mismatch(subject="python", found=python, expected=_either(release.python)))
    if lightning and release.lightning and not _satisfies(lightning, release.lightning):
        mismatches.append(Mismatch(subject="lightning", found=lightning, expected=release.lightning))
    if generation and release.generations and generation not in release.generations:
        mismatches.append(Mismatch(subject="generation", found=generation, expected=_either(release.generations)))
    return tuple(mismatches)


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files("hpu_core").joinpath("releases.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _release(row: Mapping[str, Any]) -> Release:
    """Make an immutable record of a row of the table."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if row.get("date"):
        values["date"] = dt.date.fromisoformat(row["date"])
    values["sources"] = MappingProxyType(row.get("sources", {}))
    return Release(**values)


def _satisfies(version: str, specifier: str) -> bool:
    # Pre-releases count as what they lead up to, since the vendor's builds and nightlies are named so.
    return SpecifierSet(specifier).contains(_version(version), prereleases=True)


def _first_parts(version: str | Version, count: int) -> tuple[int, ...]:
    release = _version(version).release
    return (*release, *[0] * count)[:count]


def _version(version: str | Version) -> Version:
    try:
        return version if isinstance(version, Version) else Version(version)
    except InvalidVersion as error:
        raise ValueError(f"`version` must be a version such as '1.24.1', got {version!r}") from error


def _either(values: tuple[str, ...]) -> str:
    *most, last = values
    return f"{', '.join(most)} or {last}" if most else last
