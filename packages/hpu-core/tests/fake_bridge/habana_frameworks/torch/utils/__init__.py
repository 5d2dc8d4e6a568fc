"""Odds and ends of the bridge."""
