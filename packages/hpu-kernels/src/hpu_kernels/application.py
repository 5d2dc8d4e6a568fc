"""Kernels in a model and its optimizers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from hpu_core import bridge
from hpu_kernels import attention, clipping, norm, optimizer, replacement, rotary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from typing_extensions import Self

__all__ = ["KERNELS", "Application"]

KERNELS: Final = {
    "attention": attention.apply,
    "norm": norm.apply,
    "rotary": rotary.apply,
    "clip": clipping.apply,
    "optimizer": optimizer.apply,
}
"""By name, what applies a kernel to modules and optimizers; it returns rows of the table, and how to undo it."""


class Application:
    """Kernels in a model and its optimizers, until `undo`. As a context manager, it undoes them at the end.

    Args:
        model: The model, after DDP, FSDP or `Fabric.setup` have wrapped it.
        optimizers: Its optimizers.
        kernels: Names of the kernels.
        is_on_card: Whether the model computes on hpu; None to look at its parameters.
    """

    def __init__(
        self, model: nn.Module, optimizers: Iterable[Any], kernels: Iterable[str], *, is_on_card: bool | None = None
    ) -> None:
        self._stack = ExitStack()
        self._rows: list[replacement.Row] = []
        if is_on_card is None:
            is_on_card = any(replacement.is_on_card(each) for each in model.parameters())
        if os.environ.get("HPU_KERNELS") == "0" or not is_on_card:
            return
        modules, optimizers = list(model.modules()), list(optimizers)
        for kernel in kernels:
            rows, undo = KERNELS[kernel](modules, optimizers)
            self._rows += rows
            for each in undo:
                self._stack.callback(each)

    @property
    def rows(self) -> tuple[replacement.Row, ...]:
        """What the kernels compute, and what is left to torch; calls as far as they were made."""
        calls = sorted(replacement.calls.items(), key=str)
        return (*self._rows, *(replacement.Row(kind, kernel, n, reason) for (kind, kernel, reason), n in calls))

    def undo(self) -> None:
        """Have torch compute all again. Further calls do nothing."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        rows = [f"{row.number:6}  {row.kind}: {row.kernel or f'left to torch, {row.reason}'}" for row in self.rows] or [
            "  nothing to replace"
        ]
        return "\n".join((f"hpu-kernels{' (simulated)' if bridge.is_simulated() else ''}:", *rows))
