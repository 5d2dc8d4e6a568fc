"""Names of torch that are private, or not in all versions."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Return whether torch.compile traces the caller."""
    # torch before 2.1 has no public name, and no backend for hpu.
    compiler: Any = getattr(torch, "compiler", None)
    return compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling()


def is_transformed() -> bool:
    """Return whether a function transform such as vmap is in effect, for which the bridge's kernels have no rule."""
    functorch: Any = getattr(torch._C, "_functorch", None)  # noqa: SLF001 - no public name
    return functorch is not None and not is_compiling() and functorch.peek_interpreter_stack() is not None


def constant(function: _F) -> _F:
    """Have torch.compile call a function while it traces, and take the result as a constant.

    `torch.compiler.assume_constant_result` does the same, and imports the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return function


def autocast_dtype() -> torch.dtype | None:
    """Return the dtype of autocast on hpu; None before torch 2.4, where each bridge has its own function."""
    getter: Any = getattr(torch, "get_autocast_dtype", None)
    dtype: torch.dtype | None = None if getter is None else getter("hpu")
    return dtype
