"""Tests of hpu-data."""
