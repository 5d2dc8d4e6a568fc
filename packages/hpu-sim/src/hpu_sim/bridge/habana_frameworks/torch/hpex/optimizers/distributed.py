"""Optimizers without autograd, as ``torch.distributed.optim`` uses them: gradients are arguments of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adamw import FusedAdamW as _FusedAdamW

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["FusedAdamW"]


class FusedAdamW:
    """``hpex.optimizers.FusedAdamW`` on a list of parameters.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        params: Sequence[torch.Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        moments_dtype: torch.dtype | None = None,
    ) -> None:
        self._params = list(params)
        self._optimizer = _FusedAdamW(self._params, lr, betas, eps, weight_decay, bias_correction, moments_dtype)

    def step(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take a step.

        Args:
            gradients: Gradient of each parameter; None leaves the parameter as it is.

        Raises:
            ValueError: If there are not as many gradients as parameters.
        """
        if len(gradients) != len(self._params):
            raise ValueError(
                f"`gradients` must have one element for each of the {len(self._params)} parameters, "
                f"got {len(gradients)}"
            )
        before = [parameter.grad for parameter in self._params]
        try:
            for parameter, gradient in zip(self._params, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
        finally:
            for parameter, gradient in zip(self._params, before, strict=True):
                parameter.grad = gradient
