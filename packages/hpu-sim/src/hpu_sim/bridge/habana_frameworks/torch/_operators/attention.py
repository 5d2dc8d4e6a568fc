"""Scaled dot product attention: kernels that keep the probabilities, and kernels that recompute them.

Softmax modes and the padding of sequences select among kernels of a card; lengths of sequences mask the keys. A kernel
that recomputes keeps the maximum and the reciprocal sum of each row, and the seed of dropout.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from habana_frameworks.torch._operators.float8 import amax_of, is_float8, saturate, scaled

if TYPE_CHECKING:
    from collections.abc import Mapping

# Odd numbers of 31 bits that mix the bits of a product.
_GOLDEN: Final = 0x1E3779B1
_MULTIPLIER: Final = 0x45D9F3B


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


def _sum_heads(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the gradient of keys or values from that of :func:`repeat_heads`."""
    if gradient.shape == tensor.shape:
        return gradient
    summed: torch.Tensor = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return summed


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

    def dequantize(self, scales: Mapping[str, Any]) -> Inputs:
        """Return the inputs in float32, multiplied by ``d_scale_q``, ``d_scale_k`` and ``d_scale_v``."""
        tensors = {name: scaled(getattr(self, name).float(), scales[f"d_scale_{name}"]) for name in ("q", "k", "v")}
        return dataclasses.replace(self, **tensors)

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

    def dropout(self, shape: torch.Size, seed: torch.Tensor | None = None) -> torch.Tensor | None:
        """Return factors for the probabilities, 0 for dropped ones, else what keeps their mean; None for no dropout."""
        if not self.p:
            return None
        if self.q.device.type == "meta":
            return torch.empty(shape, device=self.q.device)
        numbers = torch.rand(shape).to(self.q.device) if seed is None else _numbers_of(seed, shape)
        return (numbers >= self.p) / (1 - self.p)

    def gradients(
        self, grad: torch.Tensor, probabilities: torch.Tensor, dropout: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the gradients of queries, keys and values from that of the output."""
        wide = grad.float()
        keys, values = repeat_heads(self.k, self.q).float(), repeat_heads(self.v, self.q).float()
        weights = probabilities.float() if dropout is None else probabilities.float() * dropout.float()
        grad_value = weights.mT @ wide
        grad_weights = wide @ values.mT
        if dropout is not None:
            grad_weights = grad_weights * dropout.float()
        inner = (grad_weights * probabilities.float()).sum(-1, keepdim=True)
        grad_scores = probabilities.float() * (grad_weights - inner) * self.scale
        grad_query, grad_key = grad_scores @ keys, grad_scores.mT @ self.q.float()
        grad_key, grad_value = _sum_heads(grad_key, self.k), _sum_heads(grad_value, self.v)
        return grad_query.to(self.q.dtype), grad_key.to(self.k.dtype), grad_value.to(self.v.dtype)


def _numbers_of(seed: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return numbers from 0 to below 1, hashes of a seed that the host need not read."""
    x = torch.arange(shape.numel(), dtype=torch.int32, device=seed.device) * _GOLDEN + seed.to(torch.int32)
    for _ in range(2):
        x = (x ^ (x >> 16 & 0xFFFF)) * _MULTIPLIER
    return ((x ^ (x >> 16 & 0xFFFF)) & 0xFFFFFF).view(shape) / 0x1000000


def _sdpa_fwd(*, seed: torch.Tensor | None = None, **arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = Inputs.of(arguments)
    query = inputs.q
    probabilities = inputs.scores().softmax(-1)
    dropout = inputs.dropout(probabilities.shape, seed)
    weights = probabilities if dropout is None else probabilities * dropout
    mask = torch.empty(0, device=query.device) if dropout is None else dropout.to(query.dtype)
    return (weights @ repeat_heads(inputs.v, query).float()).to(query.dtype), probabilities.to(query.dtype), mask


def _sdpa_bwd(
    *,
    grad: torch.Tensor,
    P: torch.Tensor,  # noqa: N803 - the bridge's name
    dm: torch.Tensor | None,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # The probabilities are those after masking.
    inputs = Inputs.of(arguments)
    return inputs.gradients(grad, P, dm if inputs.p else None)


def _sdpa_recomp_fwd(
    *, requires_backward: bool, seed: torch.Tensor | None = None, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = Inputs.of(arguments)
    query = inputs.q
    scores = inputs.scores()
    weights = scores.softmax(-1)
    empty = torch.empty(0, device=query.device)
    if inputs.p and seed is None:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32).to(query.device)
    dropout = inputs.dropout(weights.shape, seed)
    weights = weights if dropout is None else weights * dropout
    output = (weights @ repeat_heads(inputs.v, query).float()).to(query.dtype)
    if not requires_backward:
        return output, empty, empty, empty
    return output, *_softmax_statistics(scores), empty if seed is None else seed


def _sdpa_recomp_bwd(
    *, grad: torch.Tensor, m: torch.Tensor, linv: torch.Tensor, seed: torch.Tensor | None, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = Inputs.of(arguments)
    probabilities = (inputs.scores() - m).exp() * linv
    return inputs.gradients(grad, probabilities, inputs.dropout(probabilities.shape, seed))


class Fp8Attention(NamedTuple):
    """Results of attention in float8.

    Attributes:
        output: Output, cast to float8 with ``q_scale_o``.
        exact: Output before that cast.
        scores: Scores in float32.
        probabilities: Softmax of the scores.
        dropout: Factors of the probabilities; None for no dropout.
    """

    output: torch.Tensor
    exact: torch.Tensor
    scores: torch.Tensor
    probabilities: torch.Tensor
    dropout: torch.Tensor | None


def fp8_attention(inputs: Inputs, scales: Mapping[str, Any]) -> Fp8Attention:
    """Return attention in float8.

    Args:
        inputs: The inputs.
        scales: Factors by name. Operands are multiplied by their ``d_scale``. Probabilities and output with a
            ``q_scale`` are multiplied by it and cast to float8.
    """
    wide_inputs = inputs.dequantize(scales)
    scores = wide_inputs.scores()
    probabilities = scores.softmax(-1)
    dropout = inputs.dropout(scores.shape)
    weights = probabilities if dropout is None else probabilities * dropout
    if scales["q_scale_s"] is not None:
        weights = saturate(scaled(weights, scales["q_scale_s"]), torch.float8_e4m3fn).float()
    exact = scaled(weights, scales["d_scale_s"]) @ repeat_heads(wide_inputs.v, wide_inputs.q)
    if scales["q_scale_o"] is None:
        output = exact.to(torch.bfloat16 if is_float8(inputs.q.dtype) else inputs.q.dtype)
    else:
        output = saturate(scaled(exact, scales["q_scale_o"]), torch.float8_e4m3fn)
    return Fp8Attention(output, exact, scores, probabilities, dropout)


def _fp8_sdpa_fwd(
    *, is_amax_s: bool, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    done = fp8_attention(Inputs.of(arguments), arguments)
    kept, scale = done.probabilities, arguments["q_scale_s"]
    mask = torch.empty(0, device=kept.device) if done.dropout is None else done.dropout
    amax = amax_of(kept, requested=is_amax_s)
    return done.output, kept if scale is None else saturate(scaled(kept, scale), torch.float8_e4m3fn), mask, amax


def _fp8_sdpa_recomp_fwd(
    *, requires_backward: bool, is_amax_s: bool, is_amax_0: bool, **arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    done = fp8_attention(Inputs.of(arguments), arguments)
    empty = torch.empty(0, device=done.scores.device)
    maximum, reciprocal = _softmax_statistics(done.scores) if requires_backward else (empty, empty)
    amaxes = amax_of(done.probabilities, requested=is_amax_s), amax_of(done.exact, requested=is_amax_0)
    return done.output, maximum, reciprocal, empty, *amaxes


def _fp8_sdpa_bwd(
    *,
    grad: torch.Tensor,
    P: torch.Tensor,  # noqa: N803 - the bridge's name
    dm: torch.Tensor | None,
    is_amax_ds: bool,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    # The gradient of the scores stays in float32, so its scales cancel.
    inputs = Inputs.of(arguments)
    wide_inputs = inputs.dequantize(arguments)
    wide = scaled(grad.float(), arguments["d_scale_do"])
    probabilities = scaled(P.float(), arguments["d_scale_s"] if is_float8(P.dtype) else None)
    gradients = wide_inputs.gradients(wide, probabilities, dm if inputs.p else None)
    grad_weights = wide @ repeat_heads(wide_inputs.v, wide_inputs.q).mT
    grad_scores = probabilities * (grad_weights - (grad_weights * probabilities).sum(-1, keepdim=True))
    dtype = torch.bfloat16 if is_float8(inputs.q.dtype) else inputs.q.dtype
    query, key, value = (gradient.to(dtype) for gradient in gradients)
    return query, key, value, amax_of(grad_scores, requested=is_amax_ds)


_INPUTS: Final = "Tensor q, Tensor k, Tensor v, Tensor? attention_mask, float p, float scale, bool is_causal"
_PADDING: Final = "Tensor? valid_seq_len, str seq_padding_type"
_KEPT: Final = f"{_INPUTS}, str softmax_mode, {_PADDING}"
_RECOMPUTED: Final = f"{_INPUTS}, bool requires_backward, str softmax_mode, {_PADDING}"
_SCALES: Final = ("d_scale_q", "d_scale_k", "d_scale_v", "q_scale_s", "q_scale_o", "d_scale_s")
_TENSOR_SCALES: Final = ", ".join(f"Tensor? {name}" for name in _SCALES)
_NUMBER_SCALES: Final = ", ".join(f"float {name}" for name in _SCALES)
# Variants of a forward kernel.
_KINDS: Final = ("(", "_dropout(", "_non_dropout(", "_dropout_seed(Tensor seed, ")
_THREE: Final = "(Tensor, Tensor, Tensor)"
_TENSORS_4: Final = "(Tensor, Tensor, Tensor, Tensor)"
_SIX: Final = "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"

#: Schemas and functions.
OPERATORS: Final = (
    *((f"sdpa_fwd{kind}{_KEPT}) -> {_THREE}", _sdpa_fwd) for kind in _KINDS),
    *((f"sdpa_recomp_fwd{kind}{_RECOMPUTED}) -> {_TENSORS_4}", _sdpa_recomp_fwd) for kind in _KINDS),
    (
        (
            "sdpa_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor P, Tensor? dm, bool is_causal, float p, "
            f"float scale, Tensor fwd_out) -> {_THREE}"
        ),
        _sdpa_bwd,
    ),
    (
        "sdpa_recomp_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? attention_mask, Tensor m, Tensor linv, "
        "Tensor? seed, bool is_causal, float p, float scale, str softmax_mode, Tensor fwd_out) -> " + _THREE,
        _sdpa_recomp_bwd,
    ),
)

#: Schemas and functions of operators that need torch's float8.
FLOAT8_OPERATORS: Final = (
    (
        f"fp8_sdpa_fwd({_INPUTS}, str softmax_mode, {_TENSOR_SCALES}, bool is_amax_s, {_PADDING}) -> {_TENSORS_4}",
        _fp8_sdpa_fwd,
    ),
    *(
        (
            (
                f"fp8_sdpa_recomp_fwd{overload}({_INPUTS}, bool requires_backward, str softmax_mode, {scales}, "
                f"bool is_amax_s, bool is_amax_0, {_PADDING}) -> {_SIX}"
            ),
            _fp8_sdpa_recomp_fwd,
        )
        for overload, scales in (("", _TENSOR_SCALES), (".scalar", _NUMBER_SCALES))
    ),
    (
        (
            "fp8_sdpa_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor P, Tensor? dm, bool is_causal, float p, "
            "float scale, Tensor? d_scale_q, Tensor? d_scale_k, Tensor? d_scale_v, Tensor? d_scale_s, "
            "Tensor? d_scale_do, Tensor? d_scale_ds, Tensor? q_scale_s, Tensor? q_scale_ds, bool is_amax_ds, "
            f"Tensor fwd_out) -> {_TENSORS_4}"
        ),
        _fp8_sdpa_bwd,
    ),
)
