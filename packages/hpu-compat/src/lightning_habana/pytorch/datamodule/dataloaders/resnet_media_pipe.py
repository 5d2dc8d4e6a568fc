"""Intel's media loader from Gaudi 2 on, which nothing here drives."""

from typing import TYPE_CHECKING

from hpu_compat import _behind, _lazy

if TYPE_CHECKING:
    from hpu_compat._absent import MediaApiDataLoader

__all__ = [
    "MediaApiDataLoader",
]

__getattr__, __dir__ = _lazy.fetching(__name__, _behind.TRAINER, __all__)
