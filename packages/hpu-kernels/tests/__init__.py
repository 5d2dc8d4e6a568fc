"""Tests of hpu-kernels."""
