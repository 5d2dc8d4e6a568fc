"""Scaled dot product attention.

Softmax modes and the padding of sequences select among kernels of a card; lengths of sequences mask the keys. For a
backward pass that recomputes the probabilities, a kernel keeps the maximum and the reciprocal sum of each row; it keeps
no seed of dropout, because no program has such a backward pass of its own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def padding_mask(key: torch.Tensor, lengths: torch.Tensor, *, from_left: bool) -> torch.Tensor:
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


def repeat_heads(tensor: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return keys or values with a head for each head of the queries, several of which may share one.

    Args:
        tensor: Keys or values of shape ``(..., heads, keys, features)``.
        query: Queries, whose number of heads is a multiple.
    """
    if tensor.dim() < 4 or tensor.shape[-3] == query.shape[-3]:  # noqa: PLR2004 - batch, heads, keys, features
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _softmax_statistics(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum and the reciprocal sum of each row, with which a backward pass recomputes the softmax."""
    maximum = scores.amax(-1, keepdim=True)
    return maximum, (scores - maximum).exp().sum(-1, keepdim=True).reciprocal()


@dataclass(frozen=True)
class Inputs:
    """Inputs of a kernel, by the names of the schemas, which do not all have every one.

    Attributes:
        q: Queries of shape ``(batch, heads, queries, features)``.
        k: Keys of shape ``(batch, heads, keys, features)``.
        v: Values of the same shape.
        attention_mask: Tensor added to the scores, or a bool tensor that is False for masked positions.
        p: Dropout probability.
        scale: Factor of the scores.
        is_causal: Whether queries attend to earlier keys only.
        valid_seq_len: Number of keys per sequence that are not padding.
        seq_padding_type: ``"left"`` if padding precedes the keys, else it follows them.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    attention_mask: torch.Tensor | None = None
    p: float = 0.0
    scale: float = 1.0
    is_causal: bool = False
    valid_seq_len: torch.Tensor | None = None
    seq_padding_type: str = "None"

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Inputs:
        """Return the inputs among the arguments of a kernel."""
        return cls(**{each.name: arguments[each.name] for each in dataclasses.fields(cls) if each.name in arguments})

    def scores(self) -> torch.Tensor:
        """Return the scores in float32, with -inf where a query does not attend to a key."""
        scores = self.q.float() @ repeat_heads(self.k, self.q).float().mT * self.scale
        if self.is_causal:
            is_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(is_later, -torch.inf)
        if self.valid_seq_len is not None:
            is_key = padding_mask(self.k, self.valid_seq_len, from_left=self.seq_padding_type == "left")
            return scores.masked_fill(~is_key, -torch.inf)
        mask = self.attention_mask
        if mask is None:
            return scores
        return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()

    def dropout(self, shape: torch.Size) -> torch.Tensor | None:
        """Return factors for the probabilities, 0 for dropped ones, else what keeps their mean; None for no dropout."""
        if not self.p:
            return None
        if self.q.device.type == "meta":
            return torch.empty(shape, device=self.q.device)
        return (torch.rand(shape).to(self.q.device) >= self.p) / (1 - self.p)


def _sdpa_recomp_fwd(
    *, requires_backward: bool, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = Inputs.of(arguments)
    query = inputs.q
    scores = inputs.scores()
    weights = scores.softmax(-1)
    dropout = inputs.dropout(weights.shape)
    weights = weights if dropout is None else weights * dropout
    output = (weights @ repeat_heads(inputs.v, query).float()).to(query.dtype)
    empty = torch.empty(0, device=query.device)
    if not requires_backward:
        return output, empty, empty, empty
    return output, *_softmax_statistics(scores), empty


_INPUTS: Final = (
    "Tensor q, Tensor k, Tensor v, Tensor? attention_mask, float p, float scale, bool is_causal, "
    "bool requires_backward, str softmax_mode"
)
_PADDING: Final = "Tensor? valid_seq_len, str seq_padding_type"

#: Schemas and functions.
OPERATORS: Final = ((f"sdpa_recomp_fwd({_INPUTS}, {_PADDING}) -> (Tensor, Tensor, Tensor, Tensor)", _sdpa_recomp_fwd),)
