"""Moving averages of a model's weights."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch

__all__ = ["FusedEMA"]

# Updates after which the average has become about two thirds as slow as it will be.
_RAMP: Final = 2000


class FusedEMA:
    """Keeps an exponential moving average of a model.

    Args:
        model: The model.
        decay: Share of the old average, which the first updates approach.
        updates: How many there were before.

    Attributes:
        ema: The averaged model, in evaluation mode and without gradients.
        updates: How often the average was updated.
    """

    def __init__(self, model: torch.nn.Module, decay: float = 0.9999, updates: int = 0) -> None:
        self.ema = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.decay = decay
        self.updates = updates

    @torch.no_grad()
    def update(self, model: torch.nn.Module) -> None:
        """Take the weights of ``model`` into the average; what is no floating-point number stays."""
        self.updates += 1
        decay = self.decay * (1 - math.exp(-self.updates / _RAMP))
        current = model.state_dict()
        for name, value in self.ema.state_dict().items():
            if value.dtype.is_floating_point:
                value.mul_(decay).add_(current[name].detach(), alpha=1 - decay)
