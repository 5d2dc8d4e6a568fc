"""Re-export of hpu-ddp's strategy "hpu_parallel"."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUParallelStrategy"]

if TYPE_CHECKING:
    from hpu_ddp import HPUParallelStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
