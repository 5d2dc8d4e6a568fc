"""Detection of the real `lightning-habana`, whose files have the same names.

pip installs one over the other without an error and leaves a mixture of both.
"""

from collections.abc import Sequence
from typing import Final

_DISTRIBUTION: Final = "lightning-habana"


def check() -> None:
    """Raise if the real `lightning-habana` is installed.

    Raises:
        ImportError: It is installed.
    """
    # Imported here because it takes as long as the rest of this package, which `import torch` imports.
    from importlib import metadata

    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    from hpu_core.install_hints import install_command

    raise ImportError(
        f"{_DISTRIBUTION} {version} must not be installed together with hpu-compat, because their files overwrite each "
        f"other: pip uninstall --yes {_DISTRIBUTION} hpu-compat && {install_command('hpu-compat')}",
        name="lightning_habana",
    )


class _ConflictFinder:
    """Meta path finder that finds no module, but runs before the one that would find the real package."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: object = None) -> None:
        """Check for a conflict when `lightning_habana` is imported.

        Raises:
            ImportError: The real `lightning-habana` is installed.
        """
        if fullname == "lightning_habana":
            check()


finder: Final = _ConflictFinder()
