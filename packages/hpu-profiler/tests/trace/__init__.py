"""Tests of what is read from traces."""
