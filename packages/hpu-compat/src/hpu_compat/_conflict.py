"""Detection of the real `lightning-habana`, whose files have the same names.

pip installs one over the other without an error and leaves a mixture of both.
"""

from typing import Final

from hpu_core.import_hooks import ImportHook

_DISTRIBUTION: Final = "lightning-habana"


def check() -> None:
    """Raise an ImportError if the real `lightning-habana` is installed."""
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


class _ConflictFinder(ImportHook):
    """Import hook that finds no module, but checks for a conflict before the real package would be found."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in self.modules:
            check()


finder: Final = _ConflictFinder({"lightning_habana"})
