"""Tests of reading traces."""
