"""Tests with programs and libraries of others."""
