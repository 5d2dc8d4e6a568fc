"""Collects these tests only in a process that has a device; tests/test_on_device.py starts such processes."""

import importlib.util

if importlib.util.find_spec("habana_frameworks") is None:
    collect_ignore_glob = ["test_*.py"]
