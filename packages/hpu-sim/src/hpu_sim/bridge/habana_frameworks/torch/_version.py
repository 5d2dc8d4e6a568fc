"""Version of the bridge, of which releases up to 1.19 have no module."""

import importlib.metadata

__version__ = importlib.metadata.version("habana-torch-plugin")


def version() -> str:
    """Return the version of the bridge."""
    return __version__
