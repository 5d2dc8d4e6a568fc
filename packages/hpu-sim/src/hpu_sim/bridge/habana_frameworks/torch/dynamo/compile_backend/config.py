"""Options of ``hpu_backend``: ``torch.compile(model, backend="hpu_backend", options={"inference": True})``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import MutableMapping
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


class _Flags(MutableMapping[str, Any]):
    """Options of this module by name."""

    def __getitem__(self, name: str) -> Any:
        if name not in _NAMES:
            raise KeyError(name)
        return globals()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in _NAMES:
            raise KeyError(name)
        globals()[name] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"an option cannot be deleted, got {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


#: The options as a mapping.
configuration_flags = _Flags()


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
