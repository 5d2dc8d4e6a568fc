"""Refuses to sit beside the real `lightning-habana`, whose files have the same names.

pip installs one over the other without a word, and what is left is a mixture.
"""

import sys
from collections.abc import Sequence
from typing import Final

_DISTRIBUTION: Final = "lightning-habana"


def check() -> None:
    """Refuse to be imported where the real one is installed, too.

    Raises:
        ImportError: It is.
    """
    # As costly as all else together, and loaded by torch anyway.
    from importlib import metadata

    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"{_DISTRIBUTION} {version} is installed beside hpu-compat, which takes its place, and their files overwrite "
        f"each other: pip uninstall --yes {_DISTRIBUTION} hpu-compat && pip install hpu-compat",
        name="lightning_habana",
    )


def install() -> None:
    """Check before `lightning_habana` is imported, whichever of the two has written it."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def remove() -> None:
    """Check no more."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Finder:
    """Finds nothing, and is asked first."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: object = None) -> None:
        """Check, if it is `lightning_habana` that is looked for.

        Raises:
            ImportError: The real one is installed, too.
        """
        if fullname == "lightning_habana":
            check()


_finder: Final = _Finder()
