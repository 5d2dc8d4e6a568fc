"""Operators of the host."""
