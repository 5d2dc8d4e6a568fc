"""Tests on simulated devices."""
