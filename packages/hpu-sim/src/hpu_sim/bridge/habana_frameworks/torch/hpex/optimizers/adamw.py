"""AdamW."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch._adamw import update

from ._base import FusedOptimizer, parameters_with_gradients, validate  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedAdamW(FusedOptimizer):
    """torch's AdamW, with ``eps`` added before the bias correction, and moments of the parameters' dtype by default.

    ``moments_dtype`` may also be a pair: of the first and of the second moment.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        moments_dtype: torch.dtype | tuple[torch.dtype, torch.dtype] | None = None,
    ) -> None:
        validate("lr", lr)
        validate("betas[0]", betas[0], less_than=1)
        validate("betas[1]", betas[1], less_than=1)
        validate("eps", eps)
        validate("weight_decay", weight_decay)
        self.moments_dtype = moments_dtype
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
        }
        super().__init__(params, defaults)

    def _step(self) -> None:
        for group in self.param_groups:
            # Per group instead of per parameter, as in the bridge's state dicts.
            group["step"] = group.get("step", 0) + 1
            beta1, beta2 = group["betas"]
            step_size = group["lr"]
            if group["bias_correction"]:
                step_size *= math.sqrt(1 - beta2 ** group["step"]) / (1 - beta1 ** group["step"])
            decay = 1 - group["weight_decay"] * group["lr"]
            for parameter, gradient in parameters_with_gradients(group):
                state = self._init_state(parameter)
                moments = state["exp_avg"], state["exp_avg_sq"]
                update(parameter, gradient, *moments, beta1, beta2, group["eps"], decay, -step_size)

    def _init_state(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self.state[parameter]
        if not state:
            dtypes = self.moments_dtype or parameter.dtype
            pair = dtypes if isinstance(dtypes, tuple) else (dtypes, dtypes)
            for name, dtype in zip(("exp_avg", "exp_avg_sq"), pair, strict=True):
                state[name] = torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format)
        return state
