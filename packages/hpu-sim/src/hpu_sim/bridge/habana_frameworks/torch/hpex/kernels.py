"""Fused kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

__all__ = ["FusedSDPA"]


class FusedSDPA:
    """Fused scaled dot product attention."""

    @staticmethod
    def apply(  # noqa: PLR0913, PLR0917 - the bridge's signature
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute: Any = None,
        valid_seq_len: torch.Tensor | None = None,
        seq_padding_type: str = "None",
    ) -> torch.Tensor:
        """Return the scaled dot product attention.

        Args:
            query: Queries of shape ``(batch, heads, queries, features)``.
            key: Keys of shape ``(batch, heads, keys, features)``.
            value: Values of shape ``(batch, heads, keys, features)``.
            attn_mask: Tensor added to the scores, or a bool tensor that is False for masked positions.
            dropout_p: Dropout probability.
            is_causal: Whether queries attend to earlier keys only.
            scale: Factor of the scores; None for ``features ** -0.5``.
            softmax_mode: Ignored.
            recompute: Ignored.
            valid_seq_len: Number of keys per sequence that are not padding, of shape ``(batch,)``.
            seq_padding_type: ``"left"`` if padding precedes the keys, else it follows them.
        """
        del softmax_mode, recompute
        if valid_seq_len is not None:
            attn_mask = _padding_mask(key, valid_seq_len, from_left=seq_padding_type == "left")
            if is_causal:
                # torch accepts a mask or the flag, not both.
                attn_mask = attn_mask & attn_mask.new_ones(query.shape[-2], key.shape[-2]).tril()
                is_causal = False
        if scale is not None:
            # torch 2.0 has no such argument.
            query = query * (scale * query.shape[-1] ** 0.5)
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal
        )


def _padding_mask(key: torch.Tensor, lengths: torch.Tensor, *, from_left: bool) -> torch.Tensor:
    position = torch.arange(key.shape[-2], device=key.device)
    if from_left:
        position = position.flip(0)
    return (position < lengths.reshape(-1, 1)).reshape(-1, 1, 1, key.shape[-2])
