"""Data parallelism under the name "hpu_ddp", which is hpu-ddp's."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_ddp import HPUDDPStrategy

__all__ = [
    "HPUDDPStrategy",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__)
