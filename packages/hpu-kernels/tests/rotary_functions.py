"""Rotary embeddings as files of transformers have them, and one that computes something else."""

import sys
from typing import Any

import torch
from torch import nn

Pair = tuple[torch.Tensor, torch.Tensor]


def apply_rotary_pos_emb(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> Pair:
    """Rotate each element with that half of the features away."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def rotate(tensor: torch.Tensor) -> torch.Tensor:
        first, second = tensor.chunk(2, -1)
        return torch.cat((-second, first), -1)

    return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


def interleaved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    """Rotate each element with the next one."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def rotate(tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)

    return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


class Rotated(nn.Module):
    """Module that calls the function of its file."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, *args: Any, **kwargs: Any) -> Pair:
        """Return the rotated query and key."""
        function: Any = vars(sys.modules[__name__])["apply_rotary_pos_emb"]
        result: Pair = function(*args, **kwargs)
        return result
