"""Causes of events inside Lightning and other frameworks, from the frames between an event and the program.

Lightning's modules are private. In versions where they differ, causes are less specific.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common.frames import TRANSPARENT, is_program, package

if TYPE_CHECKING:
    from types import FrameType

    from hpu_sim.report.schema import Phase

_LIGHTNING: Final = ("lightning.", "pytorch_lightning.")
# Modules and functions of validation loops in Lightning and transformers.
_VALIDATION_MODULES: Final = (".loops.evaluation_loop", ".loops.prediction_loop")
_VALIDATION_FUNCTIONS: Final = frozenset({"evaluation_loop", "prediction_loop"})


def find_cause(frame: FrameType | None, user: FrameType | None) -> str:
    """Return the part of a framework that caused an event.

    Returns:
        In order of preference: the method of a callback or logger, the innermost method, the innermost function. If the
        program itself called torch: the hook of the program's callback or logger, else empty.
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
    return hook or method or function or _outer_hook(user)


def _outer_hook(frame: FrameType | None) -> str:
    """Return the outermost method of a callback or logger among adjacent frames of the program."""
    hook = ""
    while frame is not None and is_program(frame):
        owner = frame.f_locals.get("self")
        if owner is not None and _is_callback(owner):
            hook = f"{type(owner).__name__}.{frame.f_code.co_name}"
        frame = frame.f_back
    return hook


def find_phase(frame: FrameType | None) -> Phase:
    """Return whether a stack is in a validation, test or prediction loop."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        is_loop = module == "transformers.trainer" and frame.f_code.co_name in _VALIDATION_FUNCTIONS
        if is_loop or module.endswith(_VALIDATION_MODULES):
            return "validation"
        frame = frame.f_back
    return "training"


def _is_callback(owner: Any) -> bool:
    return any(
        base.__name__ in {"Callback", "Logger"} and base.__module__.startswith(_LIGHTNING)
        for base in type(owner).__mro__
    )
