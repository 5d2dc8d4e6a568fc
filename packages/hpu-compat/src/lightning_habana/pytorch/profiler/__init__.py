"""The profiler, which is hpu-profiler's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_profiler import HPUProfiler

__all__ = [
    "HPUProfiler",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__, submodules=("profiler",))
