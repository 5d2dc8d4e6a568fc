"""Callbacks of a Trainer: `warmup`, `monitor` and `graphs`."""
