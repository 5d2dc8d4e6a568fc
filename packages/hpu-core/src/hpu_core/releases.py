"""Table of SynapseAI releases: the versions of torch, Python and Lightning, and the devices, that each supports.

The data is `releases.json` in this package, generated from the repository's compat.toml. None means that no source has
the value.
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
from packaging.version import Version

Subject = Literal["torch", "python", "lightning", "generation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One row of the table.

    Attributes:
        release: Release such as "1.24.1".
        build: Build such as "1.24.1.482", which is the version of the release's packages.
        date: Date on which the build was published.
        torch: torch release that the bridge is built for, such as "2.11.0".
        python: Python releases that the bridge is built for, such as ("3.10", "3.12").
        lightning: Lightning releases that Intel names, as a version specifier.
        lightning_habana: Releases of the archived lightning-habana that Intel names.
        deepspeed: Version of Intel's DeepSpeed fork.
        deepspeed_ref: Branch of that fork.
        hmp: Whether the bridge has `hpex.hmp`.
        mode: Mode of the bridge if PT_HPU_LAZY_MODE is not set, "lazy" or "eager".
        generations: Supported generations.
        sources: Sources of each value, as codes that compat.toml explains.
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
    # A mapping is not hashable.
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Installed version that the table does not list for a release.

    Attributes:
        subject: Kind of version.
        found: Installed version.
        expected: Versions that the table lists, as text.
    """

    subject: Subject
    found: str
    expected: str


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return every release, oldest version first."""
    text = resources.files("hpu_core").joinpath("releases.json").read_text(encoding="utf-8")
    return tuple(_parse_row(row) for row in json.loads(text)["releases"])


def find(version: str | Version) -> Release | None:
    """Return the row of a release, None if it is not in the table.

    Args:
        version: Release, with its build ("1.24.1.482") or without ("1.24.1").

    Raises:
        ValueError: `version` is not a version.
    """
    parts = _version_parts(version, 3)
    return next((row for row in releases() if _version_parts(row.release, 3) == parts), None)


def match(
    release: Release,
    *,
    torch: str | None = None,
    python: str | None = None,
    lightning: str | None = None,
    generation: str | None = None,
) -> tuple[Mismatch, ...]:
    """Return the installed versions that do not match a release. None, installed or in the row, always matches.

    Args:
        release: Row to compare with.
        torch: `torch.__version__`. Major and minor version must match, as the bridge requires. Versions of Intel's
            builds have the form "2.11.0a0+git009b5f6".
        python: Version such as "3.12.4". Major and minor version must match.
        lightning: Version of `lightning` or `pytorch_lightning`.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".

    Returns:
        The mismatches, in the order of the arguments.

    Raises:
        ValueError: An argument is not a version.
    """
    # hpu-doctor verify: torch-version-is-required
    mismatches = []
    if torch and release.torch and _version_parts(torch, 2) != _version_parts(release.torch, 2):
        mismatches.append(Mismatch(subject="torch", found=torch, expected=release.torch))
    known = release.python or ()
    if python and known and _version_parts(python, 2) not in {_version_parts(version, 2) for version in known}:
        mismatches.append(Mismatch(subject="python", found=python, expected=_join_or(known)))
    if lightning and release.lightning and not _in_specifier(lightning, release.lightning):
        mismatches.append(Mismatch(subject="lightning", found=lightning, expected=release.lightning))
    if generation and release.generations and generation not in release.generations:
        mismatches.append(Mismatch(subject="generation", found=generation, expected=_join_or(release.generations)))
    return tuple(mismatches)


def _parse_row(row: Mapping[str, Any]) -> Release:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if row.get("date"):
        values["date"] = dt.date.fromisoformat(row["date"])
    values["sources"] = MappingProxyType(row.get("sources", {}))
    return Release(**values)


def _in_specifier(version: str, specifier: str) -> bool:
    # Intel's builds and nightly builds have pre-release versions.
    return SpecifierSet(specifier).contains(_parse_version(version), prereleases=True)


def _version_parts(version: str | Version, count: int) -> tuple[int, ...]:
    release = _parse_version(version).release
    return (*release, *[0] * count)[:count]


def _parse_version(version: str | Version) -> Version:
    try:
        return version if isinstance(version, Version) else Version(version)
    # InvalidVersion, and int's error for thousands of digits.
    except ValueError as error:
        raise ValueError(f"`version` must be a version such as '1.24.1', got {version!r:.80}") from error


def _join_or(values: tuple[str, ...]) -> str:
    *head, last = values
    return f"{', '.join(head)} or {last}" if head else last
