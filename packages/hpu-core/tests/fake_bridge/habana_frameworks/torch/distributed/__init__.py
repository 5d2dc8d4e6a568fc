"""Fake `distributed`."""
