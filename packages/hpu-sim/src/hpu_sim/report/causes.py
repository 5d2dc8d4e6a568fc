"""Causes of events inside Lightning and other frameworks, from the frames between an event and the program.

Lightning's modules are private. In versions where they differ, causes are less specific.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common.frames import TRANSPARENT, package

if TYPE_CHECKING:
    from types import FrameType

_LIGHTNING: Final = ("lightning.", "pytorch_lightning.")


def find_cause(frame: FrameType | None, user: FrameType | None) -> str:
    """Return the part of a framework that caused an event.

    Returns:
        In order of preference: the method of a callback or logger, the innermost method, the innermost function; empty
        if the program itself called torch.
    """
    hook = method = function = ""
    while frame is not None and frame is not user:
        if package(frame) not in TRANSPARENT:
            owner = frame.f_locals.get("self")
            name = frame.f_code.co_name
            if owner is not None:
                qualified = f"{type(owner).__name__}.{name}"
                # The outermost method of a callback is its hook.
                hook = qualified if _is_callback(owner) else hook
                method = method or qualified
            function = function or f"{frame.f_globals.get('__name__')}.{name}"
        frame = frame.f_back
    return hook or method or function


def _is_callback(owner: Any) -> bool:
    return any(
        base.__name__ in {"Callback", "Logger"} and base.__module__.startswith(_LIGHTNING)
        for base in type(owner).__mro__
    )
