"""Kernels of the card's own, as functions of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

__all__ = ["FusedSDPA"]


class FusedSDPA:
    """Scaled dot product attention."""

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
        """Return the attention of queries to keys, applied to values.

        Args:
            query: Queries of shape ``(batch, heads, queries, features)``.
            key: Keys of shape ``(batch, heads, keys, features)``.
            value: Values of shape ``(batch, heads, keys, features)``.
            attn_mask: What is added to the scores, or False where there is no attention.
            dropout_p: Share of the attention that is dropped.
            is_causal: Whether a query sees no later key.
            scale: Factor of the scores; None for one over the root of the features.
            softmax_mode: Accepted; the numbers are never less exact here.
            recompute: Accepted; torch decides what it keeps for the backward pass.
            valid_seq_len: Number of keys of each sequence that count, of shape ``(batch,)``.
            seq_padding_type: ``"left"`` where the others stand first, else they stand last.
        """
        del softmax_mode, recompute
        if valid_seq_len is not None:
            attn_mask = _padding_mask(key, valid_seq_len, from_left=seq_padding_type == "left")
            if is_causal:
                # torch takes a mask or the flag, not both.
                attn_mask = attn_mask & attn_mask.new_ones(query.shape[-2], key.shape[-2]).tril()
                is_causal = False
        if scale is not None:
            # As part of the query, for torch 2.0 has no such argument.
            query = query * (scale * query.shape[-1] ** 0.5)
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal
        )


def _padding_mask(key: torch.Tensor, lengths: torch.Tensor, *, from_left: bool) -> torch.Tensor:
    position = torch.arange(key.shape[-2], device=key.device)
    if from_left:
        position = position.flip(0)
    return (position < lengths.reshape(-1, 1)).reshape(-1, 1, 1, key.shape[-2])
