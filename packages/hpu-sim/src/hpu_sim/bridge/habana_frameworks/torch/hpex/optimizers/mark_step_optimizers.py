"""torch's Adam and AdamW with ``mark_step`` before and after each step. The bridge dropped them after 1.19."""

from __future__ import annotations

from typing import Any

import torch

from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy


class _MarkStep(torch.optim.Optimizer):
    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Take a step as torch's optimizer does."""
        _mark_step_if_lazy()
        result = super().step(*args, **kwargs)
        _mark_step_if_lazy()
        return result


class Adam(_MarkStep, torch.optim.Adam):
    """torch's Adam, whose step is a graph of its own in lazy mode."""


class AdamW(_MarkStep, torch.optim.AdamW):
    """torch's AdamW, whose step is a graph of its own in lazy mode."""
