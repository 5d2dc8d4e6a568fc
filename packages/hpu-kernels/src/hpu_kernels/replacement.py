"""Functions of torch and of models, in whose place others are that use a kernel."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from hpu_core import bridge
from hpu_kernels import _torch

__all__ = ["Row"]

Undo = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """Line of the table.

    Attributes:
        kind: Function of torch, or class of a module or an optimizer.
        kernel: The bridge's kernel; None if it is left to torch.
        number: Number of calls until now, of modules or of optimizers.
        reason: Why it is left.
    """

    kind: str
    kernel: str | None
    number: int
    reason: str = ""


calls: Final[Counter[tuple[str, str | None, str]]] = Counter()
"""Number of calls by function, kernel and reason why it was left to torch."""

# How often each replacement was asked for.
_uses: Final[Counter[Any]] = Counter()
_modules: Final[dict[str, Any]] = {}


@_torch.constant
def take(function: str, kernel: str, reason: str | None) -> bool:
    """Count a call; return whether the kernel computes it, which is so without a reason against it."""
    # What another library has wrapped is called after the end.
    if not _uses:
        return False
    calls[function, None if reason else kernel, reason or ""] += 1
    return reason is None


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
        if not _uses:
            calls.clear()
        # Another library may have wrapped the replacement in the meantime.
        if getattr(owner, name) is found:
            delattr(owner, name) if is_inherited else setattr(owner, name, found.__wrapped__)

    return undo


@torch.no_grad()
def is_same(plain: Callable[[], Any], fused: Callable[[], Any]) -> bool:
    """Return whether a function of a model, called with a small input, computes what a kernel does."""
    try:
        expected = plain()
    except Exception:  # noqa: BLE001 - a function of others, which may need anything.
        return False
    pairs = [each if isinstance(each, tuple) else (each,) for each in (expected, fused())]
    return len(pairs[0]) == len(pairs[1]) and all(
        isinstance(each, torch.Tensor) and each.shape == other.shape and torch.allclose(each, other, atol=1e-5)
        for each, other in zip(*pairs, strict=True)
    )


def bridge_module(name: str) -> Any:
    """Return a module of the bridge."""
    if name not in _modules:
        _modules[name] = bridge.optional_module(name)
    return _modules[name]


def is_on_card(*tensors: object) -> bool:
    """Return whether all are tensors on hpu."""
    return all(isinstance(tensor, torch.Tensor) and tensor.device.type == "hpu" for tensor in tensors)
