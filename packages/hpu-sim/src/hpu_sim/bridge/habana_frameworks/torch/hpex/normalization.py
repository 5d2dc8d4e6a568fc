"""Gradient clipping and RMS normalization."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import torch

from hpu_sim.device.events import as_one_kernel, as_two_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FusedClipNorm", "FusedRMSNorm", "RmsNormBwdMode"]

# Avoids a division by zero, as in torch.nn.utils.clip_grad_norm_.
_EPS = 1e-6


class RmsNormBwdMode(enum.Enum):
    """Kernels of the backward pass of :class:`FusedRMSNorm`."""

    DEFAULT = 0
    STATIC_CASE_WIDTH_PARTITIONING = 1


class FusedClipNorm:
    """Gradient clipping by the total L2 norm."""

    def __init__(self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float) -> None:
        self.parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self.max_norm = float(max_norm)

    @as_one_kernel
    def clip_norm(self, parameters: Iterable[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Clip the gradients of ``parameters`` in place, and return their total norm before.

        Returns:
            A tensor of one element on the device; ``tensor(0.)`` if there is no gradient.
        """
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
        if not gradients:
            return torch.tensor(0.0)
        with torch.no_grad():
            norm: torch.Tensor = torch.stack([gradient.norm() for gradient in gradients]).norm()
            clip_coef = torch.clamp(self.max_norm / (norm + _EPS), max=1)
            for gradient in gradients:
                gradient.mul_(clip_coef.to(gradient.dtype))
        return norm


class FusedRMSNorm:
    """RMS normalization over the last dimension."""

    @staticmethod
    @as_two_kernels
    def apply(  # noqa: PLR0913, PLR0917 - the bridge's signature
        data: torch.Tensor,
        gamma: torch.Tensor,
        eps: float,
        use_stages: bool = True,
        bwd_mode: int | RmsNormBwdMode = 0,
        fast_math: bool = False,
    ) -> torch.Tensor:
        """Return ``data`` normalized over its last dimension, times ``gamma``; the rest selects a kernel of a card."""
        del use_stages, bwd_mode, fast_math
        # Squares of 16-bit numbers overflow or lose precision.
        upcast = data if data.dtype == torch.float64 else data.float()
        normalized = upcast * torch.rsqrt(upcast.pow(2).mean(-1, keepdim=True) + eps)
        return (normalized * gamma.to(upcast.dtype)).to(data.dtype)
