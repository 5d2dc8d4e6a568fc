"""Stream of events of a process, which run, report, profile and plan share.

The device emits most of them (``csrc/events.h``), torch's hooks of optimizers, ``mark_step`` and the bridge's fused
kernels the others.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hpu_sim.device import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

#: Kinds of what would be slow or fail on a card.
DIAGNOSTICS: Final = frozenset({
    "host_sync", "cpu_fallback", "cache_miss", "compilation", "recompilation", "h2d", "d2h", "collective", "dtype",
    "unsupported", "late_error", "graph_break", "trace_break", "compiled_graph",
})  # fmt: skip
#: Kinds of steps of torch's optimizers, and of closures within them; ``arguments`` has the optimizer.
OPTIMIZERS: Final = frozenset({"optimizer_begin", "optimizer_end", "closure_begin", "closure_end"})
#: Kinds of what a step consists of. The operators between ``kernel_begin`` and ``kernel_end`` are one launch on a card.
OPERATORS: Final = frozenset({
    "operator", "h2d", "d2h", "collective", "host_sync", "dynamic", "assumed", "shapeless", "mark_step",
    "kernel_begin", "kernel_end",
})  # fmt: skip


class Event(NamedTuple):
    """Event of the device or of the program.

    Attributes:
        kind: Kind; ``csrc/events.h`` describes those of the device.
        name: Operator, collective, or what waits for the device.
        detail: Shapes and dtypes, arguments, a dtype, or an error message, depending on the kind.
        size: Bytes.
        operator: Name and overload of the operator, while any listener takes operators.
        arguments: Its arguments.
        results: Its results.
    """

    kind: str
    name: str = ""
    detail: str = ""
    size: int = 0
    operator: tuple[str, str] = ("", "")
    arguments: tuple[Any, ...] = ()
    results: tuple[Any, ...] = ()


_listeners: Final[list[tuple[frozenset[str], Callable[[Event], None]]]] = []
_hooks: Final[list[Any]] = []
# A variable of its own, for what torch.compile traces.
_records_operators = False


def subscribe(kinds: frozenset[str], listener: Callable[[Event], None]) -> Callable[[], None]:
    """Call a function with each event of some kinds, on the thread of the event, and return what ends it.

    Listeners are called in the order in which they began.
    """
    entry = kinds, listener

    def end() -> None:
        if entry in _listeners:
            _listeners.remove(entry)
            _update()

    _listeners.append(entry)
    _update()
    return end


def emit(event: Event) -> None:
    """Call the listeners of an event."""
    for kinds, listener in tuple(_listeners):
        if event.kind in kinds:
            listener(event)


def _update() -> None:
    global _records_operators  # noqa: PLW0603 - the state of the process
    needed = frozenset[str]().union(*(kinds for kinds, _ in _listeners))
    _records_operators = "operator" in needed
    # Where operators are recorded, the device emits the kinds that both have.
    diagnostics = bool(needed & (DIAGNOSTICS - OPERATORS if _records_operators else DIAGNOSTICS))
    runtime.native().set_listener(_take if diagnostics or _records_operators else None, diagnostics, _records_operators)
    if bool(needed & OPTIMIZERS) is not bool(_hooks):
        if _hooks:
            for hook in _hooks:
                hook.remove()
            _hooks.clear()
        else:
            from torch.optim import optimizer

            _hooks.append(optimizer.register_optimizer_step_pre_hook(_begin_optimizer))
            _hooks.append(optimizer.register_optimizer_step_post_hook(_end_optimizer))


def _take(*fields: Any) -> None:
    emit(Event(*fields))


def _begin_optimizer(optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Begin an optimizer's step, whose closure, if any, is no part of it."""
    emit(Event("optimizer_begin", arguments=(optimizer,)))

    def outside(closure: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            emit(Event("closure_begin", arguments=(optimizer,)))
            try:
                return closure()
            finally:
                emit(Event("closure_end", arguments=(optimizer,)))

        return call

    args = (args[0], *(outside(each) if callable(each) else each for each in args[1:]))
    return args, {name: outside(each) if name == "closure" and each else each for name, each in kwargs.items()}


def _end_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    del args, kwargs
    emit(Event("optimizer_end", arguments=(optimizer,)))


@contextlib.contextmanager
def one_kernel(dtype: str = "") -> Iterator[None]:
    """Emit the operators within as parts of one launch, whose products are in a type that is not their tensors'."""
    emit(Event("kernel_begin", detail=dtype))
    try:
        yield
    finally:
        emit(Event("kernel_end"))


def as_one_kernel(function: Callable[..., Any], dtype: str = "") -> Callable[..., Any]:
    """Return a function whose operators are one launch on a card, as :func:`one_kernel` says."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # First, because what torch.compile traces would be guarded by the other one.
        if is_compiling() or not _records_operators:
            return function(*args, **kwargs)
        with one_kernel(dtype):
            return function(*args, **kwargs)

    return call


def as_two_kernels(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function whose operators are a kernel in the forward pass, and another in the backward pass.

    The autograd engine runs the nodes of one call right after each other: from the gradient of the result to that of
    the first argument, of which a view makes a node of its own.
    """
    forward = as_one_kernel(function)

    @functools.wraps(function)
    def apply(*args: Any, **kwargs: Any) -> Tensor:
        # First, because what torch.compile traces would be guarded by the other one.
        if is_compiling() or not _records_operators:
            return function(*args, **kwargs)
        first: Tensor = args[0].view_as(args[0])
        result: Tensor = forward(first, *args[1:], **kwargs)
        if first.requires_grad:
            result.register_hook(lambda _: emit(Event("kernel_begin")))
            first.register_hook(lambda _: emit(Event("kernel_end")))
        return result

    return apply


def is_compiling() -> bool:
    """Return whether torch.compile traces the caller, whose graph a call of the device would break."""
    import torch

    # torch 2.0 has no such module, 2.1 no such function.
    return bool(getattr(getattr(torch, "compiler", None), "is_compiling", bool)())
