"""Re-export of `hpu_profiler.HPUProfiler`."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_profiler import HPUProfiler

__all__ = ["HPUProfiler"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__, submodules=("profiler",))
