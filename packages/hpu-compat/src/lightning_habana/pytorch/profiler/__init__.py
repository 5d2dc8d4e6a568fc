"""Profiler of the Trainer."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUProfiler"]

if TYPE_CHECKING:
    from hpu_profiler import HPUProfiler
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
