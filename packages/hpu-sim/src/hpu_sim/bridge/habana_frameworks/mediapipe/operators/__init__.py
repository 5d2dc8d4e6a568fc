"""Operators of media pipes."""
