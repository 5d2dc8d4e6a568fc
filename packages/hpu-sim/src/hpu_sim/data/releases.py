"""SynapseAI releases that the simulator knows, from a table generated from the repository's compat.toml."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Release:
    """Facts of a release that the simulated bridge depends on.

    Attributes:
        version: The SynapseAI release, such as ``"1.24.1"``.
        build: Version of the release's ``habana-torch-plugin`` distribution; None if unknown.
        lazy: Whether lazy mode is the default. If that is unknown, the release is eager, as adjacent releases are.
        hmp: Whether it is known to have ``hpex.hmp``.
    """

    version: str
    build: str | None
    lazy: bool
    hmp: bool


@functools.cache
def _table() -> tuple[str, dict[str, Release]]:
    data = json.loads(resources.files("hpu_sim.data").joinpath("releases.json").read_text(encoding="utf-8"))
    releases = {
        row["release"]: Release(
            version=row["release"],
            build=row.get("build"),
            lazy=row.get("mode") == "lazy",
            hmp=row.get("hmp") is True,
        )
        for row in data["releases"]
    }
    return data["default"], releases


def find(version: str | None = None) -> Release:
    """Return a release of the table.

    Args:
        version: A SynapseAI release such as ``"1.18.0"``; None for the default, the newest well-known one.

    Raises:
        ValueError: If the table does not have the release.
    """
    default, releases = _table()
    key = default if version is None else version
    if key not in releases:
        raise ValueError(
            f"`release` must be a SynapseAI release that the simulator knows ({', '.join(releases)}), got {key!r}"
        )
    return releases[key]
