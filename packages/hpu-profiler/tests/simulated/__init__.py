"""Tests that need a device, run on the simulator."""
