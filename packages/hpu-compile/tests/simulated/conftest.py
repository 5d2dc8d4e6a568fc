"""Collects these tests only in a process with a simulated device; tests/test_on_simulator.py starts such processes."""

import os

if "HPU_SIM_DEVICES" not in os.environ:
    collect_ignore_glob = ["test_*.py"]
