"""Placeholder for Intel's media loader for Gaudi 2 and newer, which is not supported."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_compat._unsupported import MediaApiDataLoader

__all__ = ["MediaApiDataLoader"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
