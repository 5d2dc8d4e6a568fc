"""Fake `utils`."""
