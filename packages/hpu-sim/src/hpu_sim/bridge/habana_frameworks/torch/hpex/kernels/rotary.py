"""Rotary position embedding."""

from __future__ import annotations

import enum

import torch

from hpu_sim.device.events import as_two_kernels

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


def _rotate(tensor: torch.Tensor, mode: RotaryPosEmbeddingMode) -> torch.Tensor:
    """Return each pair of elements (a, b) as (-b, a)."""
    if mode is RotaryPosEmbeddingMode.PAIRWISE:
        return torch.stack((-tensor[..., 1::2], tensor[..., ::2]), -1).flatten(-2)
    first, second = tensor.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _at_positions(table: torch.Tensor, rows: int, position_ids: torch.Tensor | None, offset: int) -> torch.Tensor:
    """Return the sines or cosines of the rows of a tensor.

    Args:
        table: One row of sines or cosines per position.
        rows: Number of rows of the tensor.
        position_ids: Position of each row, with a batch dimension; None for consecutive positions.
        offset: First of the consecutive positions.
    """
    if position_ids is None:
        return table[..., offset : offset + rows, :]
    flat = table.reshape(-1, table.shape[-1])
    return flat[position_ids].unsqueeze(1)


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
    cos, sin = (_at_positions(each, p.shape[-2], position_ids, offset) for each in (cos, sin))
    # Features beyond those of the angles stay.
    part, rest = p.split((cos.shape[-1], p.shape[-1] - cos.shape[-1]), -1)
    output = (part * cos + _rotate(part, mode) * sin).to(p.dtype)
    return torch.cat((output, rest), -1) if rest.shape[-1] else output


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
