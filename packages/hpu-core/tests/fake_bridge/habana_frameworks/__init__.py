"""Fake of the Gaudi bridge."""
