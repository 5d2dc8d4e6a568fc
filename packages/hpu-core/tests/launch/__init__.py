"""Tests of hpu_core.launch."""
