"""Tests of hpu-export."""
