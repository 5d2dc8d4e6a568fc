"""Intel's media loader, which nothing here drives."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import HPUDataModule

__all__ = [
    "HPUDataModule",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__)
