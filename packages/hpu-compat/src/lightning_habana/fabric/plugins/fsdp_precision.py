"""Placeholder for the precision plugin of FSDP, which is not supported."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_compat._unsupported import HPUFSDPPrecision

__all__ = [
    "HPUFSDPPrecision",
]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
