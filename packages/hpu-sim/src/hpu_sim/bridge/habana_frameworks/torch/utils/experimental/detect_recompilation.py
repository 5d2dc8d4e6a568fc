"""Detection of the submodules of a model whose input shapes change, each of which compiles recipes on a card."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

__all__ = ["detect_recompilation_auto_model"]


class detect_recompilation_auto_model(torch.nn.Module):  # noqa: N801 - the bridge's name
    """Wrapper of a model that records the input shapes of its submodules.

    ::

        model = detect_recompilation_auto_model(model)
        for batch in loader:
            model(batch)
        model.analyse_dynamicity()

    With ``csv_out``, :meth:`analyse_dynamicity` also writes ``<mdlname>_dynamicity.csv``. ``waittime`` has no effect.
    """

    def __init__(
        self, model: torch.nn.Module, mdlname: str | None = None, waittime: float = 1, csv_out: bool = False
    ) -> None:
        super().__init__()
        del waittime
        self.model = model
        self._name = mdlname or type(model).__name__
        self._csv_out = csv_out
        # By submodule, in the order of their first call: the input shapes and how often each occurred.
        self._shapes: dict[str, dict[tuple[Any, ...], int]] = {}
        for name, module in model.named_modules(prefix=self._name):
            module.register_forward_pre_hook(self._recorder(name))

    def _recorder(self, name: str) -> Any:
        def record(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
            del module
            shapes = self._shapes.setdefault(name, {})
            leaves = tree_flatten(inputs)[0]
            key = tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
            shapes[key] = shapes.get(key, 0) + 1

        return record

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def analyse_dynamicity(self) -> list[tuple[str, int, int]]:
        """Print the submodules with several input shapes.

        Returns:
            Name, number of calls and number of input shapes of each of them.
        """
        rows = [(name, sum(shapes.values()), len(shapes)) for name, shapes in self._shapes.items() if len(shapes) > 1]
        for name, calls, shapes in rows:
            print(f"{name}: {shapes} input shapes in {calls} calls")  # noqa: T201 - as the bridge does
        if self._csv_out:
            with Path(f"{self._name}_dynamicity.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("module", "calls", "input shapes"), *rows])
        return rows
