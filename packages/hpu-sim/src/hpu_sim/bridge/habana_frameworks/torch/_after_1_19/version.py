"""The version of the bridge, which 1.19 and older bridges do not tell."""

# ruff: noqa: INP001 - this folder is added to the path of a package

import importlib.metadata

__version__ = importlib.metadata.version("habana-torch-plugin")


def version() -> str:
    """Return the version of the bridge."""
    return __version__
