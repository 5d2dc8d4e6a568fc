"""Re-export of `hpu_core.HPUCheckpointIO`."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy

__all__ = ["HPUCheckpointIO"]

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(__name__, __all__)
