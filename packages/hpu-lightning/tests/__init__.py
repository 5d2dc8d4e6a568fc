"""Tests of hpu-lightning."""
