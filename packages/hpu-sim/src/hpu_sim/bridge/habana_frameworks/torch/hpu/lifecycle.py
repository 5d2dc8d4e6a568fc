"""Taking the card."""

from __future__ import annotations

from hpu_sim import activation


def is_initialized() -> bool:
    """Return whether this process has taken a card."""
    return activation.has_card()


def init() -> None:
    """Take a card for this process, unless it has one, and let activation checkpointing default to the device.

    Raises:
        RuntimeError: If no card is free, or if the process was forked off one that had a card.
    """
    activation.acquire_card()


def _lazy_init() -> None:
    """Take a card; torch calls it before the first hpu tensor."""
    init()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked off one that had a card."""
    return activation.is_in_bad_fork()
