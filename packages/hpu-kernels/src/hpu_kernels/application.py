"""Kernels in a model and its optimizers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from hpu_core import bridge
from hpu_kernels import attention, clipping, norm, optimizer, rotary, scope, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from hpu_kernels.table import Row

__all__ = ["Application"]

SWITCH: Final = "HPU_KERNELS"
"""Environment variable that switches all kernels off with the value 0."""


class Application:
    """Kernels in a model and its optimizers, until `undo`. As a context manager, it undoes them at the end.

    Args:
        model: The model on the device, after DDP, FSDP or `Fabric.setup` have wrapped it.
        optimizers: Its optimizers.
        kernels: Names of the kernels.
        whole_thread: Whether all that this thread calls belongs to the model, whose parameters may be offloaded.
    """

    def __init__(
        self, model: nn.Module, optimizers: Iterable[Any], kernels: Iterable[str], *, whole_thread: bool = False
    ) -> None:
        self._stack = ExitStack()
        self._rows: list[Row] = []
        kernels = set(kernels)
        is_on_card = whole_thread or any(scope.is_on_card(each) for each in model.parameters())
        if os.environ.get(SWITCH) == "0" or not is_on_card:
            return
        modules = list(model.modules())
        callers = [each for each in modules if _may_call(each)]
        self._add([], [scope.enter_thread(model) if whole_thread else scope.enter_modules(model, callers)])
        if "attention" in kernels:
            self._add([], attention.apply(modules))
        if "clip" in kernels:
            self._add([], clipping.apply())
        if "norm" in kernels:
            self._add(*norm.apply(modules))
        if "rotary" in kernels:
            self._add(*rotary.apply(modules))
        for each in optimizers if "optimizer" in kernels else ():
            row, undo = optimizer.apply(each)
            self._add([row], undo)

    @property
    def rows(self) -> tuple[Row, ...]:
        """What the kernels compute, and what is left to torch; calls as far as they were made."""
        kernels = {attention.KERNEL, clipping.KERNEL, rotary.KERNEL}
        calls = [
            table.Row(kind, outcome, number) if outcome in kernels else table.Row(kind, None, number, outcome)
            for (kind, outcome), number in sorted(scope.calls.items())
        ]
        return (*self._rows, *calls)

    def undo(self) -> None:
        """Have torch compute all again. Further calls do nothing."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        return table.render(self.rows, simulated=bridge.is_simulated())

    def _add(self, rows: Iterable[Row], undo: Iterable[scope.Undo]) -> None:
        self._rows += rows
        for each in undo:
            self._stack.callback(each)


def _may_call(module: nn.Module) -> bool:
    """Return whether a module may call one of the functions: those of torch do not, but one."""
    return isinstance(module, nn.MultiheadAttention) or not type(module).__module__.startswith("torch.")
