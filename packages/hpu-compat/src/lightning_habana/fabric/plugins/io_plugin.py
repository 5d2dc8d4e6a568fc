"""Checkpoints, which are hpu-core's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_core import HPUCheckpointIO

__all__ = [
    "HPUCheckpointIO",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.FABRIC, __all__)
