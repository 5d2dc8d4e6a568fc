"""Metadata of the distribution ``habana-torch-plugin`` while the simulator is active.

Programs read the release from its version through ``importlib.metadata``. It exists in this process only: nothing is
written to disk, and tools that search folders, such as pip, do not see it.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from hpu_sim.device import features

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from hpu_sim.data.releases import Release

NAME: Final = "habana-torch-plugin"


def register(release: Release) -> None:
    """Make ``importlib.metadata`` find the distribution, with the build of ``release`` as its version.

    A release whose build is unknown has no distribution.
    """
    if release.build is not None:
        sys.meta_path.append(_DistributionFinder(release))


class _PluginDistribution(importlib.metadata.Distribution):
    """Distribution of one release."""

    def __init__(self, release: Release) -> None:
        self._files = {
            "METADATA": (
                f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {release.build}\n"
                "Summary: Gaudi PyTorch bridge, simulated by hpu-sim\n"
            ),
            "top_level.txt": "habana_frameworks\n",
        }
        if features.features_of(release.version).from_1_19:
            self._files["entry_points.txt"] = (
                "[torch.backends]\ndevice_backend = habana_frameworks.autoload:__autoload\n"
            )

    def read_text(self, filename: str) -> str | None:
        """Return a metadata file, or None if there is none of this name."""
        return self._files.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> NoReturn:
        """Raise, because the distribution has no files.

        Raises:
            FileNotFoundError: Always.
        """
        raise FileNotFoundError(f"{NAME} is simulated and has no files: {path} does not exist")


class _DistributionFinder(importlib.metadata.DistributionFinder):
    """Finder of the distribution."""

    def __init__(self, release: Release) -> None:
        self._distribution = _PluginDistribution(release)

    def find_spec(self, *_: object) -> None:
        """Return None: the modules of the bridge are found on ``sys.path``."""

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        """Return the distribution if its name or every distribution is asked for."""
        # A search of given folders asks for what is installed there.
        if context is not None and "path" in vars(context):
            return []
        name = None if context is None else context.name
        return [self._distribution] if name is None or _normalize_name(name) == NAME else []


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
