"""The SynapseAI releases that the simulator can play, from a table generated out of the repository's compat.toml."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, cast


@dataclass(frozen=True)
class Release:
    """What a release decides about the simulated bridge.

    Attributes:
        version: The SynapseAI release, such as ``"1.24.1"``.
        build: Version of the ``habana-torch-plugin`` distribution of that release, or None where no source gives it.
        lazy: Whether lazy mode is the default. A release whose default no source gives is taken to be eager, as are its
            neighbours.
        generations: Card generations that the release supports; empty where no source gives them.
    """

    version: str
    build: str | None
    lazy: bool
    generations: tuple[str, ...]


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("hpu_sim").joinpath("releases.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


@functools.cache
def _table() -> tuple[str, dict[str, Release]]:
    releases = {
        row["release"]: Release(
            version=row["release"],
            build=row.get("build"),
            lazy=row.get("mode") == "lazy",
            generations=tuple(row.get("generations") or ()),
        )
        for row in _data()["releases"]
    }
    return _data()["default"], releases


def find(version: str | None = None) -> Release:
    """Return a release of the table.

    Args:
        version: A SynapseAI release such as ``"1.18.0"``; None for the default, the newest whose facts are known.

    Raises:
        ValueError: If the table has no such release.
    """
    default, releases = _table()
    wanted = default if version is None else version
    if wanted not in releases:
        raise ValueError(
            f"`release` must be a SynapseAI release that the simulator knows ({', '.join(releases)}), got {wanted!r}"
        )
    return releases[wanted]


def has_hmp(version: str) -> bool:
    """Return whether a source shows the HMP module in a release; where none says so, it is taken to be gone.

    Args:
        version: A release of the table.
    """
    return any(row["release"] == version and row.get("hmp") is True for row in _data()["releases"])
