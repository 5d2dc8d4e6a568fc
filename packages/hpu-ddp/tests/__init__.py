"""Tests of hpu-ddp. Ranks import test functions from this package by module name."""
