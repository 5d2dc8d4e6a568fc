"""Re-export of hpu-fsdp's strategy."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUFSDPStrategy"]

if TYPE_CHECKING:
    from hpu_fsdp import HPUFSDPStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
