"""Helpers of the archived package that other programs import."""

from hpu_compat import _lazy

__getattr__, __dir__ = _lazy.fetching(__name__, {}, (), submodules=("hpu_distributed", "imports", "resources"))
