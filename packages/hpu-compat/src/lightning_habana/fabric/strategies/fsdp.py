"""FSDP, which nothing here offers."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUFSDPStrategy

__all__ = [
    "HPUFSDPStrategy",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.FABRIC, __all__)
