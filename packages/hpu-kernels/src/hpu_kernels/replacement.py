"""Functions of torch and of models, in whose place others are that use a kernel."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import torch

from hpu_core import bridge
from hpu_kernels import _torch

Undo = Callable[[], None]

calls: Final[Counter[tuple[str, str]]] = Counter()
"""Number of calls by function or class, and by kernel or the reason why it was left to torch."""

# How often each replacement was asked for.
_uses: Final[Counter[Any]] = Counter()
_applications: Final[set[object]] = set()
_bridge: Final[dict[str, Any]] = {}


def bridge_module(name: str) -> Any:
    """Return a module of the bridge."""
    if name not in _bridge:
        _bridge[name] = bridge.optional_module(name)
    return _bridge[name]


def register() -> Undo:
    """Have replacements use the kernels until the result is called, and the results of other registrations."""
    application = object()
    _applications.add(application)

    def undo() -> None:
        _applications.discard(application)
        if not _applications:
            calls.clear()

    return undo


@_torch.constant
def take(kind: str, kernel: str, reason: str | None) -> bool:
    """Count a call; return whether the kernel computes it, which is so without a reason against it."""
    # What another library has wrapped is called after the end.
    if not _applications:
        return False
    note(kind, kernel, reason)
    return reason is None


def note(kind: str, kernel: str, reason: str | None) -> None:
    """Count a call."""
    calls[kind, f"left to torch, {reason}" if reason else kernel] += 1


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace a function, once however often it is asked for, until all results were called.

    Args:
        owner: Its Python module or class.
        name: Its name.
        make: Returns the replacement of a function, made with `functools.wraps`.
    """
    is_inherited = name not in vars(owner)
    found = getattr(owner, name)
    if found not in _uses:
        found = make(found)
        setattr(owner, name, found)
    _uses[found] += 1

    def undo() -> None:
        _uses[found] -= 1
        if _uses[found]:
            return
        del _uses[found]
        # Another library may have wrapped the replacement in the meantime.
        if getattr(owner, name) is found:
            delattr(owner, name) if is_inherited else setattr(owner, name, found.__wrapped__)

    return undo


@torch.no_grad()
def is_same(plain: Callable[[], Any], expected: Any) -> bool:
    """Return whether a function of a model, called with a small input, computes what a kernel does.

    On the host, where it is computed in a plan as well.
    """
    try:
        result = plain()
    except Exception:  # noqa: BLE001 - a function of others, which may need anything.
        return False
    results, others = (each if isinstance(each, tuple) else (each,) for each in (result, expected))
    return len(results) == len(others) and all(
        isinstance(each, torch.Tensor) and each.shape == other.shape and torch.allclose(each, other, atol=1e-5)
        for each, other in zip(results, others, strict=True)
    )


def is_on_card(*tensors: object) -> bool:
    """Return whether all are tensors on hpu."""
    return all(isinstance(tensor, torch.Tensor) and tensor.device.type == "hpu" for tensor in tensors)
