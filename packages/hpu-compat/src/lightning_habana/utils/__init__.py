"""Helpers of the archived package that other programs import."""
