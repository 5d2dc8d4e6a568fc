"""Flags of the bridge that can change while a program runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Flags that programs set, with the defaults of bridge 1.19. None of them changes what the simulator computes.
_flags: Final[dict[str, Any]] = {
    "PT_COMPILE_ONLY_MODE": False,
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": False,
}


@contextlib.contextmanager
def env_setting(name: str, value: Any) -> Iterator[None]:
    """Return a context manager that sets a flag.

    With ``PT_COMPILE_ONLY_MODE`` a card compiles recipes without running them. Here operators run.

    Args:
        name: Name of the flag.
        value: Its value.

    Raises:
        KeyError: If the bridge has no such flag, which programs use to find out.
    """
    before = _flags[name]
    _flags[name] = value
    try:
        yield
    finally:
        _flags[name] = before
