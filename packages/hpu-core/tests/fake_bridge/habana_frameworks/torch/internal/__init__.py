"""Fake `internal`."""
