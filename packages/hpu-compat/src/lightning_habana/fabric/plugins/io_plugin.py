"""Re-export of `hpu_core.HPUCheckpointIO`."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO

__all__ = ["HPUCheckpointIO"]

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
