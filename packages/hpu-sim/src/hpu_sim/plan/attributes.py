"""Attributes that are replaced for the time of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import ExitStack


def replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until a stack is closed."""
    # A static method of a class is restored as one.
    stack.callback(setattr, owner, name, vars(owner).get(name, getattr(owner, name)))
    setattr(owner, name, value)
