"""Tests of hpu-compile."""
