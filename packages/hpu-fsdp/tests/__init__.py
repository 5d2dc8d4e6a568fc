"""Tests of hpu-fsdp."""
