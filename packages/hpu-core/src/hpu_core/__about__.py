"""The version of this distribution, read by the build back-end and by nothing else here."""

__version__ = "0.2.0"
