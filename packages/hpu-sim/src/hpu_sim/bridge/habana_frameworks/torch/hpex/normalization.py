"""Gradient clipping and RMS normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FusedClipNorm", "FusedRMSNorm"]

# As in torch.nn.utils.clip_grad_norm_: a norm of zero must not be divided by.
_TINY = 1e-6


class FusedClipNorm:
    """Clips gradients by their L2 norm.

    Args:
        parameters: The parameters.
        max_norm: Norm of all gradients together that they are scaled down to.
    """

    def __init__(self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float) -> None:
        self.parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self.max_norm = float(max_norm)

    def clip_norm(self, parameters: Iterable[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Scale the gradients of ``parameters`` in place and return the norm that they had together.

        Returns:
            A tensor of one element on the card; ``tensor(0.)`` where there is no gradient.
        """
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        gradients = [parameter.grad for parameter in given if parameter.grad is not None]
        if not gradients:
            return torch.tensor(0.0)
        with torch.no_grad():
            norm: torch.Tensor = torch.stack([gradient.norm() for gradient in gradients]).norm()
            factor = torch.clamp(self.max_norm / (norm + _TINY), max=1)
            for gradient in gradients:
                gradient.mul_(factor.to(gradient.dtype))
        return norm


class FusedRMSNorm:
    """Divides by the root of the mean of squares along the last dimension."""

    @staticmethod
    def apply(  # noqa: PLR0913, PLR0917 - the bridge's signature
        data: torch.Tensor,
        gamma: torch.Tensor,
        eps: float,
        use_stages: bool = True,
        bwd_mode: int = 0,
        fast_math: bool = False,
    ) -> torch.Tensor:
        """Return ``data`` normalized along its last dimension, times ``gamma``.

        Args:
            data: A tensor of shape ``(..., features)``.
            gamma: Weights of shape ``(features,)``.
            eps: Added to the mean of squares.
            use_stages: Accepted; a choice between two kernels of the card.
            bwd_mode: Accepted; a choice between kernels of the card's backward pass.
            fast_math: Accepted; the numbers are never less exact here.
        """
        del use_stages, bwd_mode, fast_math
        # In float32 whatever comes in, since squares of 16-bit numbers overflow or lose their digits.
        wide = data if data.dtype == torch.float64 else data.float()
        normalized = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return (normalized * gamma.to(wide.dtype)).to(data.dtype)
