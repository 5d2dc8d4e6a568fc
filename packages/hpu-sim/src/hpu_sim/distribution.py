"""The distribution ``habana-torch-plugin``, as ``importlib.metadata`` sees it while the simulator is active.

Programs read the release from its version. It exists in this process only: nothing is written to disk, so nothing is
left behind, and tools that look at folders, such as pip, see nothing.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from hpu_sim import features

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from hpu_sim.releases import Release

NAME: Final = "habana-torch-plugin"


class _Plugin(importlib.metadata.Distribution):
    """The distribution of one release."""

    def __init__(self, release: Release) -> None:
        self._files = {
            "METADATA": (
                f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {release.build}\n"
                "Summary: The Gaudi PyTorch bridge as hpu-sim plays it (simulated)\n"
            ),
            "top_level.txt": "habana_frameworks\n",
        }
        if features.features_of(release.version).entry_point:
            self._files["entry_points.txt"] = (
                "[torch.backends]\ndevice_backend = habana_frameworks.autoload:__autoload\n"
            )

    def read_text(self, filename: str) -> str | None:
        """Return a file of the metadata, or None."""
        return self._files.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> NoReturn:
        """There are no files to locate.

        Raises:
            FileNotFoundError: Always.
        """
        raise FileNotFoundError(f"{NAME} is simulated and has no files, so there is no {path}")


class _Finder(importlib.metadata.DistributionFinder):
    """Answers for the distribution beside the finders of those that are installed."""

    def __init__(self, release: Release) -> None:
        self._plugin = _Plugin(release)

    def find_spec(self, *_: object) -> None:
        """Find no modules: the bridge lies on ``sys.path``."""

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        """Return the distribution where it is asked for, or where all are."""
        # A search of folders given by name is about what lies in them.
        if context is not None and "path" in vars(context):
            return []
        name = None if context is None else context.name
        return [self._plugin] if name is None or _normalized(name) == NAME else []


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def offer(release: Release) -> None:
    """Let ``importlib.metadata`` find the plugin's distribution with the build of ``release`` as its version.

    A release whose build no source gives has none.
    """
    if release.build is not None:
        sys.meta_path.append(_Finder(release))
