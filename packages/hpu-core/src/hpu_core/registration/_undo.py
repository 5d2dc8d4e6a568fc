"""Reversal of what registration changes in Lightning."""

from contextlib import ExitStack
from typing import Final

stack: Final = ExitStack()
"""Callbacks that restore Lightning, called in reverse order by `close`."""
