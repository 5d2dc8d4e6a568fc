"""Data parallelism under the name "hpu_parallel", which is hpu-ddp's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_ddp import HPUParallelStrategy

__all__ = [
    "HPUParallelStrategy",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__)
