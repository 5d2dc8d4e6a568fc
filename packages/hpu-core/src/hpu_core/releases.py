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

from packaging.version import Version


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
    parts = _release_parts(version)
    return next((row for row in releases() if _release_parts(row.release) == parts), None)


def _parse_row(row: Mapping[str, Any]) -> Release:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if row.get("date"):
        values["date"] = dt.date.fromisoformat(row["date"])
    values["sources"] = MappingProxyType(row.get("sources", {}))
    return Release(**values)


def _release_parts(version: str | Version) -> tuple[int, ...]:
    try:
        return (*Version(str(version)).release, 0, 0)[:3]
    except ValueError as error:
        raise ValueError(f"`version` must be a version such as '1.24.1', got {version!r}") from error
