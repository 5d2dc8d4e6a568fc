"""Where kernels are used: in the modules that they were applied to, and in what those recompute in a backward pass."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import torch
from torch import nn

from hpu_core import bridge
from hpu_kernels import _torch

Undo = Callable[[], None]

calls: Final[Counter[tuple[str, str]]] = Counter()
"""Number of calls by function and by kernel, or by the reason why it was left to torch."""


class _Thread(threading.local):
    # Modules of this thread that are computing now, of those to which kernels were applied.
    depth = 0


class _Process:
    # Those to which kernels were applied, once for each application.
    models: ClassVar[list[nn.Module]] = []
    # Whether a module to which nothing was applied has called one of the functions.
    is_shared = False


_thread = _Thread()


def is_active() -> bool:
    """Return whether the caller is a module, or the recomputation of one, to which kernels were applied."""
    if _torch.is_compiling():
        return not _Process.is_shared
    if _thread.depth:
        return True
    if _Process.models and _torch.is_in_backward():
        # A function that a checkpoint recomputes runs outside of its module. If other modules train as well, it may
        # be theirs.
        return not _Process.is_shared
    _Process.is_shared = True
    return False


def enter_thread(model: nn.Module) -> Undo:
    """Use kernels in all that this thread calls for a model, until the result is called."""
    _start(model)
    _thread.depth += 1

    def undo() -> None:
        _thread.depth -= 1
        _stop(model)

    return undo


def enter_modules(model: nn.Module, modules: Iterable[nn.Module]) -> Undo:
    """Use kernels in the calls of modules of a model, until the result is called."""
    _start(model)
    handles: list[Any] = []
    for module in modules:
        handles += [
            module.register_forward_pre_hook(_enter),
            # Also after an error.
            module.register_forward_hook(_leave, always_call=True),
        ]

    def undo() -> None:
        for handle in handles:
            handle.remove()
        _stop(model)

    return undo


def owns(parameters: Iterable[torch.Tensor]) -> bool:
    """Return whether the first of some parameters is that of a model to which kernels were applied."""
    first = next(iter(parameters), None)
    return any(each is first for model in _Process.models for each in model.parameters())


def _start(model: nn.Module) -> None:
    _Process.models.append(model)


def _stop(model: nn.Module) -> None:
    # By identity: a module may define what is equal to it.
    del _Process.models[next(index for index, each in enumerate(_Process.models) if each is model)]
    if not _Process.models:
        _Process.is_shared = False
        calls.clear()


def _enter(*_: Any) -> None:
    if not _torch.is_compiling():
        _thread.depth += 1


def _leave(*_: Any) -> None:
    if not _torch.is_compiling():
        _thread.depth -= 1


@_torch.constant
def note(function: str, outcome: str) -> None:
    """Count a call that a kernel computes, or that is left to torch."""
    calls[function, outcome] += 1


_MARK: Final = "_hpu_kernels_replaces"


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace a function of a Python module, once however often it is asked for, until all results were called.

    Args:
        owner: The module.
        name: Name of the function.
        make: Returns the replacement of a function.
    """
    found = getattr(owner, name)
    if not hasattr(found, _MARK):
        replacement = make(found)
        setattr(replacement, _MARK, [found, 0])
        setattr(owner, name, replacement)
        found = replacement
    entry = getattr(found, _MARK)
    entry[1] += 1

    def undo() -> None:
        entry[1] -= 1
        # Another library may have wrapped the replacement in the meantime.
        if not entry[1] and getattr(owner, name) is found:
            setattr(owner, name, entry[0])

    return undo


_modules: Final[dict[str, Any]] = {}


def bridge_module(name: str) -> Any:
    """Return a module of the bridge."""
    if name not in _modules:
        _modules[name] = bridge.optional_module(name)
    return _modules[name]


def is_on_card(*tensors: object) -> bool:
    """Return whether all are tensors on hpu."""
    return all(isinstance(tensor, torch.Tensor) and tensor.device.type == "hpu" for tensor in tensors)
