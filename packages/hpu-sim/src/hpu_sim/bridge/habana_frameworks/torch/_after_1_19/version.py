"""Version of the bridge."""

# ruff: noqa: INP001 - a folder on the path of a package

from habana_frameworks.torch._version import __version__, version

__all__ = ["__version__", "version"]
