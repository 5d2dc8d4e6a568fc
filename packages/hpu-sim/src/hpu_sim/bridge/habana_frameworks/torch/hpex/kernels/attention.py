"""Scaled dot product attention."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from habana_frameworks.torch.hpu import recompute_sdp_enabled
from hpu_sim.device.events import is_compiling, one_kernel
from hpu_sim.device.runtime import active_config, native

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        seq_padding_type: str = "left",
        return_dropout_mask: bool = False,
        return_attn_probs: bool = False,
        /,
    ) -> Any:
        """Return the scaled dot product attention, and with ``return_attn_probs`` the probabilities.

        The bridge's class is an ``autograd.Function``, whose ``apply`` takes no keyword arguments. Several heads of the
        queries may share one of the keys. A mask is added to the scores, or is False for masked positions. Without a
        scale it is ``features ** -0.5``. ``valid_seq_len`` is the number of keys per sequence that are not padding.
        ``softmax_mode`` only selects a kernel. Whether the backward pass recomputes the probabilities, by default
        ``hpu.recompute_sdp_enabled()``, decides on a strict device whether the scores take memory.

        Raises:
            AssertionError: If the bridge's kernel does not support the combination of arguments.
        """
        needs_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
        recomputes = recompute_sdp_enabled() if recompute is None else bool(recompute)
        is_strict = active_config().strict
        _check_combination(
            {
                "a valid_seq_len without is_causal, or with a mask or gradients": valid_seq_len is not None
                and is_strict
                and (not is_causal or attn_mask is not None or needs_gradient),
                "softmax_mode 'fast' with recompute and gradients but without is_causal": is_strict
                and softmax_mode == "fast"
                and recomputes
                and needs_gradient
                and not is_causal,
                "return_attn_probs with gradients": return_attn_probs and needs_gradient,
                "return_dropout_mask": return_dropout_mask,
            }
        )
        key, value = _repeat_heads(key, query), _repeat_heads(value, query)
        if valid_seq_len is not None:
            attn_mask = _padding_mask(key, valid_seq_len, from_left=seq_padding_type == "left")
        if attn_mask is not None and is_causal:
            # torch accepts a mask or the flag, not both.
            causal = attn_mask.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
            attn_mask = (
                attn_mask & causal if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~causal, -torch.inf)
            )
            is_causal = False
        factor = 1.0 if scale is None else scale * query.shape[-1] ** 0.5
        if not math.isclose(factor, 1.0):
            # torch 2.0 has no such argument.
            query = query * factor
        if return_attn_probs:
            return _attention_with_probabilities(query, key, value, attn_mask, is_causal=is_causal)
        if is_compiling():
            return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal)
        with one_kernel(), _without_scores() if recomputes else contextlib.nullcontext():
            return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal)


@contextlib.contextmanager
def _without_scores() -> Iterator[None]:
    """Take attention as the kernel that keeps no scores."""
    native().set_fused_attention(True)
    try:
        yield
    finally:
        native().set_fused_attention(False)


def _check_combination(unsupported: dict[str, bool]) -> None:
    for name, is_unsupported in unsupported.items():
        if is_unsupported:
            raise AssertionError(f"FusedSDPA does not support {name}")


def _padding_mask(key: torch.Tensor, lengths: torch.Tensor, *, from_left: bool) -> torch.Tensor:
    """Return a mask that is False for the keys of a batch that are padding.

    Args:
        key: Keys of shape ``(batch, heads, keys, features)``.
        lengths: Number of keys per sequence that are not padding, of shape ``(batch,)``.
        from_left: Whether padding precedes the keys.
    """
    position = torch.arange(key.shape[-2], device=key.device)
    if from_left:
        position = position.flip(0)
    return (position < lengths.reshape(-1, 1)).reshape(-1, *[1] * (key.dim() - 2), key.shape[-2])


def _repeat_heads(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return keys or values with a head for each head of the queries, several of which may share one.

    Args:
        tensor: Keys or values of shape ``(..., heads, keys, features)``.
        query: Queries, whose number of heads is a multiple.
    """
    if tensor.dim() < 4 or tensor.shape[-3] == query.shape[-3]:  # noqa: PLR2004 - batch, heads, keys, features
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _attention_with_probabilities(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, *, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = query.float() @ key.float().mT * query.shape[-1] ** -0.5
    if is_causal:
        is_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(is_later, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()
    probabilities = scores.softmax(-1).to(query.dtype)
    return probabilities @ value, probabilities
