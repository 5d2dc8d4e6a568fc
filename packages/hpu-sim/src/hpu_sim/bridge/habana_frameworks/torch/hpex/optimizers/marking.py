"""torch's Adam and AdamW, each step a graph of its own in lazy mode. Bridges after 1.19 have them no more."""

from __future__ import annotations

from typing import Any

import torch

from habana_frameworks.torch.core.step_closure import _mark_step_if_lazy


class Adam(torch.optim.Adam):
    """torch's Adam; closes the graph before and after a step."""

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Take a step as torch's does."""
        _mark_step_if_lazy()
        result = super().step(*arguments, **options)
        _mark_step_if_lazy()
        return result


class AdamW(torch.optim.AdamW):
    """torch's AdamW; closes the graph before and after a step."""

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Take a step as torch's does."""
        _mark_step_if_lazy()
        result = super().step(*arguments, **options)
        _mark_step_if_lazy()
        return result
