"""Trials of hpu-fsdp that take minutes. Ranks import their functions from this package by module name."""
