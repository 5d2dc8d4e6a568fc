"""Re-export of hpu-ddp's strategy "hpu_ddp"."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUDDPStrategy"]

if TYPE_CHECKING:
    from hpu_ddp import HPUDDPStrategy
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
