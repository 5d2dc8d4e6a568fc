"""Tests that need a simulated device."""
