"""Options of ``hpu_backend``: ``torch.compile(model, backend="hpu_backend", options={"inference": True})``."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def _flag(variable: str, *, default: bool) -> bool:
    return os.environ.get(variable, str(default)).lower() in {"1", "true"}


#: Whether the graph is compiled for inference. None: where no gradients are wanted.
inference: bool | None = None

#: Whether an input that the graph changes is changed within it, rather than by a copy at its end.
keep_input_mutations: bool = _flag("PT_HPU_KEEP_INPUT_MUTATIONS", default=True)

#: Whether operators that cannot be compiled run one by one.
use_eager_fallback: bool = _flag("PT_HPU_USE_EAGER_FALLBACK", default=False)

_NAMES = ("inference", "keep_input_mutations", "use_eager_fallback")


@contextlib.contextmanager
def patch(options: dict[str, Any]) -> Iterator[None]:
    """Return a context in which options have other values.

    Raises:
        AttributeError: If there is no such option.
    """
    for name in options:
        if name not in _NAMES:
            raise AttributeError(f"`options` of hpu_backend are {', '.join(_NAMES)}, got {name!r}")
    before = {name: globals()[name] for name in options}
    globals().update(options)
    try:
        yield
    finally:
        globals().update(before)
