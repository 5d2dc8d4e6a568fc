"""Re-export of hpu-fsdp's strategy."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_fsdp import HPUFSDPStrategy

__all__ = ["HPUFSDPStrategy"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
