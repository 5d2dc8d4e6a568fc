"""Utilities of the bridge."""
