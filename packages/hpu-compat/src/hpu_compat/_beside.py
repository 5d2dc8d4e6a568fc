"""Refuses to sit beside the real `lightning-habana`, whose files have the same names.

pip installs one over the other without a word, and what is left is a mixture.
"""

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
        f"each other: pip uninstall --yes {_DISTRIBUTION} hpu-compat && pip install 'hpu-compat[all]'",
        name="lightning_habana",
    )
