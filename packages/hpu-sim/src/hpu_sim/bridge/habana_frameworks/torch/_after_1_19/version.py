"""Version of the bridge, which releases up to 1.19 do not have."""

# ruff: noqa: INP001 - a folder on the path of a package

import importlib.metadata

__version__ = importlib.metadata.version("habana-torch-plugin")


def version() -> str:
    """Return the version of the bridge."""
    return __version__
