"""Tests of hpu-compat."""
