"""Version of the package, readable without importing it."""

__version__ = "0.1.0"
