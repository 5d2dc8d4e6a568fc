"""Tests of hpu-bucketing."""
