"""Re-export of hpu-core's strategy for one device."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["SingleHPUStrategy"]

if TYPE_CHECKING:
    from hpu_core import SingleHPUStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
