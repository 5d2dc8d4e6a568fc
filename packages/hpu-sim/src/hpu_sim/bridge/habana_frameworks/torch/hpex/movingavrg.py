"""Moving average of a model's weights."""

from __future__ import annotations

import copy
import math

import torch

_RAMP = 2000


class FusedEMA:
    """Exponential moving average of everything in a model's state dict that is floating point.

    The decay grows with the number of updates, so that early averages forget the initial weights.

    Attributes:
        ema: Copy of the model with the averages, in evaluation mode and without gradients.
        updates: Number of updates.
    """

    def __init__(self, model: torch.nn.Module, decay: float = 0.9999, updates: int = 0) -> None:
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.updates = updates
        self._decay = decay

    def decay(self, updates: int) -> float:
        """Return the decay of an update."""
        return self._decay * (1 - math.exp(-updates / _RAMP))

    @torch.no_grad()
    def update(self, model: torch.nn.Module) -> None:
        """Include the weights of a model in the average."""
        self.updates += 1
        decay = self.decay(self.updates)
        weights = model.state_dict()
        for name, average in self.ema.state_dict().items():
            if average.dtype.is_floating_point:
                average.mul_(decay).add_(weights[name].detach(), alpha=1 - decay)
