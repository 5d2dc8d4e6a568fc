"""Fixtures of the package's tests."""

import sys
from pathlib import Path

# The trials and their ranks import the package `tests` beside this one.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.conftest import on_ranks

__all__ = ["on_ranks"]
