"""Options of ``hpu_backend``: ``torch.compile(model, backend="hpu_backend", options={"inference": True})``."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


EAGER_FALLBACK_VARIABLE: Final = "PT_HPU_USE_EAGER_FALLBACK"


def _flag(variable: str, *, default: bool) -> bool:
    return os.environ.get(variable, str(default)).lower() in {"1", "true"}


#: Whether a graph of dynamic shapes is compiled for each shape.
force_static_compile: bool = _flag("PT_HPU_FORCE_STATIC_COMPILE", default=False)

#: Whether the graph is compiled for inference; None to decide by whether gradients are needed.
inference: bool | None = None

#: Whether the graph mutates inputs itself, instead of by copies at its end.
keep_input_mutations: bool = _flag("PT_HPU_KEEP_INPUT_MUTATIONS", default=True)

#: Whether operators that cannot be compiled run in eager mode.
use_eager_fallback: bool = _flag(EAGER_FALLBACK_VARIABLE, default=False)

_NAMES = ("force_static_compile", "inference", "keep_input_mutations", "use_eager_fallback")


@contextlib.contextmanager
def patch(options: dict[str, Any]) -> Iterator[None]:
    """Return a context manager that overrides options.

    Raises:
        AttributeError: If an option is unknown.
    """
    for name in options:
        if name not in _NAMES:
            raise AttributeError(f"`options` of hpu_backend must be among {', '.join(_NAMES)}, got {name!r}")
    before = {name: globals()[name] for name in options}
    globals().update(options)
    try:
        yield
    finally:
        globals().update(before)
