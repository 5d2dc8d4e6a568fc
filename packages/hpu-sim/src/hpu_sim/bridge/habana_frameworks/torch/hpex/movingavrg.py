"""Moving average of a model's weights."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_RAMP = 2000


class FusedEMA:
    """Exponential moving average of everything in a model's state dict that is floating point.

    The decay grows with the number of updates, so that early averages forget the initial weights. Of a model in torch's
    DistributedDataParallel or DataParallel, the module inside is averaged.

    Attributes:
        ema: Copy of the model with the averages, in evaluation mode.
        updates: Number of updates.

    Raises:
        ValueError: If the decay is negative.
    """

    def __init__(self, model: torch.nn.Module, decay: float = 0.9999, updates: int = 0) -> None:
        if decay < 0:
            raise ValueError(f"`decay` must be at least 0, got {decay!r}")
        self.ema = copy.deepcopy(_unwrap(model)).eval()
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
        weights = _unwrap(model).state_dict()
        for name, average in self.ema.state_dict().items():
            if average.dtype.is_floating_point:
                average.mul_(decay).add_(weights[name].detach(), alpha=1 - decay)

    def update_attr(
        self,
        model: torch.nn.Module,
        include: Sequence[str] = (),
        exclude: Sequence[str] = ("process_group", "reducer"),
    ) -> None:
        """Copy the public attributes of a model to the average.

        Args:
            model: The model.
            include: Names of the attributes to copy; empty for all.
            exclude: Names of attributes not to copy.
        """
        for name, value in vars(model).items():
            if name.startswith("_") or name in exclude or (include and name not in include):
                continue
            setattr(self.ema, name, value)


def _unwrap(model: torch.nn.Module) -> torch.nn.Module:
    if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        return cast("torch.nn.Module", model.module)
    return model
