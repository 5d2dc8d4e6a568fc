"""Readers of media pipes."""
