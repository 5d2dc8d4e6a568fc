"""Rotary position embedding."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from habana_frameworks.torch._operators import rotary
from hpu_sim.device.events import as_two_kernels

if TYPE_CHECKING:
    import torch

__all__ = [
    "RotaryPosEmbeddingHelperV1",
    "RotaryPosEmbeddingHelperV2",
    "RotaryPosEmbeddingHelperV3",
    "RotaryPosEmbeddingMode",
    "apply_rotary_pos_emb",
]


class RotaryPosEmbeddingMode(enum.Enum):
    """Pairing of the elements that are rotated together: a half of the features apart, or adjacent."""

    BLOCKWISE = 0
    PAIRWISE = 1


def apply_rotary_pos_emb(  # noqa: PLR0913, PLR0917 - the bridge's signature
    p: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    offset: int = 0,
    mode: RotaryPosEmbeddingMode = RotaryPosEmbeddingMode.BLOCKWISE,
) -> torch.Tensor:
    """Return queries or keys, whose features come last and whose positions before them, rotated by their angles.

    Cosines and sines have one row per position. Without ``position_ids``, of shape ``(batch, rows)``, positions are
    consecutive from ``offset`` on.
    """
    rotated: torch.Tensor = rotary.rotary_pos_embedding(p, sin, cos, position_ids, offset, mode.value)
    return rotated


class RotaryPosEmbeddingHelperV1:
    """Rotation as in GPT-NeoX: consecutive positions from an offset on."""

    @staticmethod
    @as_two_kernels
    def apply(p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, offset: int) -> torch.Tensor:
        """Return the rotated tensor; the arguments are those of :func:`apply_rotary_pos_emb`."""
        return apply_rotary_pos_emb(p, cos, sin, None, offset)


class RotaryPosEmbeddingHelperV2:
    """Rotation as in Llama: given positions."""

    @staticmethod
    @as_two_kernels
    def apply(p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor | None) -> torch.Tensor:
        """Return the rotated tensor; the arguments are those of :func:`apply_rotary_pos_emb`."""
        return apply_rotary_pos_emb(p, cos, sin, position_ids)


class RotaryPosEmbeddingHelperV3:
    """Rotation as in ChatGLM: adjacent elements are rotated together, and one table has cosines and sines."""

    @staticmethod
    @as_two_kernels
    def apply(x: torch.Tensor, rope_cache: torch.Tensor) -> torch.Tensor:
        """Return the rotated tensor.

        Args:
            x: Queries or keys of shape ``(rows, batch, heads, features)``.
            rope_cache: Cosine and sine by position and pair of features, of shape ``(positions, batch, pairs, 2)``.
        """
        rows, pairs = x.shape[0], rope_cache.shape[-2]
        table = rope_cache[:rows].reshape(rows, -1, 1, pairs, 2)
        cos, sin = (each.repeat_interleave(2, -1) for each in (table[..., 0], table[..., 1]))
        # The positions are not right before the features here, so each vector is a row of its own.
        rows_of_one, cos, sin = (each.unsqueeze(-2) for each in (x, cos, sin))
        return apply_rotary_pos_emb(rows_of_one, cos, sin, mode=RotaryPosEmbeddingMode.PAIRWISE).squeeze(-2)
