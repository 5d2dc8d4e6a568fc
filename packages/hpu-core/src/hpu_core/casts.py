"""Casts of mixed precision on hpu, and contexts without them.

The Trainer runs a whole `training_step` in the casts, and with it what is no part of the forward pass. The bridge casts
more operators than autocast on a CPU or CUDA does, among them `mean`, so that such code would be rounded here only.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import torch

from hpu_core import bridge, hmp

_P = ParamSpec("_P")
_T = TypeVar("_T")


def are_enabled() -> bool:
    """Return whether operators on hpu are cast now, by autocast or by HMP."""
    return bridge.is_loaded() and (hmp.is_casting() or _is_autocast_enabled())


@contextmanager
def disabled() -> Iterator[None]:
    """Return a context without casts; it does nothing where nothing is cast."""
    if not are_enabled():
        yield
        return
    with ExitStack() as contexts:
        if hmp.is_casting():
            contexts.enter_context(hmp.casts(enabled=False))
        if _is_autocast_enabled():
            contexts.enter_context(torch.autocast("hpu", enabled=False))
        yield


def without(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that runs without casts."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with disabled():
            return function(*args, **kwargs)

    return call


def _is_autocast_enabled() -> bool:
    # torch before 2.4 asks the device's module, and bridges that have HMP only have no such function.
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled("hpu")
    is_enabled: Callable[[], bool] = getattr(getattr(torch, "hpu", None), "is_autocast_hpu_enabled", bool)
    return is_enabled()
