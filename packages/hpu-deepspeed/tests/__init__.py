"""Tests of hpu-deepspeed. Ranks import test functions from this package by module name."""
