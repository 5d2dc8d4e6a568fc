"""Memory of parameters, gradients and optimizer states, which ZeRO can partition."""

from __future__ import annotations

import weakref
from typing import Any

from hpu_sim.report.schema import OptimizerMemory


class OptimizerMemoryTracker:
    """Tracker that measures each optimizer once, after its first step, which creates the optimizer state."""

    def __init__(self) -> None:
        # Weak, so as not to keep the device memory of dropped optimizers.
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._states: list[OptimizerMemory | None] = []

    def measure(self, optimizer: Any) -> None:
        """Measure an optimizer unless it was measured before."""
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            self._states.append(_measure(optimizer))

    def total(self) -> OptimizerMemory | None:
        """Return the sum over all optimizers.

        None without one, or if one has sharded or offloaded parameters, whose sizes are not those on the device.
        """
        states = [state for state in self._states if state is not None]
        if not states or len(states) < len(self._states):
            return None
        return OptimizerMemory(
            parameters=sum(state.parameters for state in states),
            gradients=sum(state.gradients for state in states),
            optimizer_state=sum(state.optimizer_state for state in states),
        )


def _measure(optimizer: Any) -> OptimizerMemory | None:
    import torch

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not all(type(parameter) is torch.nn.Parameter and parameter.device.type == "hpu" for parameter in parameters):
        return None
    state = [
        value
        for entries in optimizer.state.values()
        for value in (entries.values() if isinstance(entries, dict) else ())
        if isinstance(value, torch.Tensor) and value.device.type == "hpu"
    ]
    return OptimizerMemory(
        parameters=sum(map(_bytes, parameters)),
        gradients=sum(_bytes(parameter.grad) for parameter in parameters if parameter.grad is not None),
        optimizer_state=sum(map(_bytes, state)),
    )


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
