"""Re-export of hpu-ddp's strategy "hpu_ddp"."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_ddp import HPUDDPStrategy

__all__ = ["HPUDDPStrategy"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
