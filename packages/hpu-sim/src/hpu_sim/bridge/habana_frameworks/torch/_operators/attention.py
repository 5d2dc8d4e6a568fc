"""Scaled dot product attention: kernels that keep the probabilities, and kernels that recompute them.

Softmax modes and the padding of sequences select among kernels of a card; lengths of sequences mask the keys. A kernel
that recomputes keeps the maximum and the reciprocal sum of each row, and the seed of dropout.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from habana_frameworks.torch._operators.float8 import Scale, amax_of, is_float8, saturate, scaled


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


def _scores(  # noqa: PLR0913, PLR0917 - the bridge's arguments
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    is_causal: bool,
    valid_seq_len: torch.Tensor | None = None,
    seq_padding_type: str = "None",
) -> torch.Tensor:
    """Return the scores in float32, with -inf where a query does not attend to a key."""
    scores = query.float() @ repeat_heads(key, query).float().mT * scale
    if is_causal:
        is_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(is_later, -torch.inf)
    if valid_seq_len is not None:
        is_key = padding_mask(key, valid_seq_len, from_left=seq_padding_type == "left")
        return scores.masked_fill(~is_key, -torch.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.float()


def _softmax_statistics(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum and the reciprocal sum of each row, with which a backward pass recomputes the softmax."""
    maximum = scores.amax(-1, keepdim=True)
    return maximum, (scores - maximum).exp().sum(-1, keepdim=True).reciprocal()


def _dropout(shape: torch.Size, p: float, device: torch.device, seed: torch.Tensor | None = None) -> torch.Tensor:
    """Return factors for the probabilities: 0 for dropped ones, else what keeps their mean."""
    if device.type == "meta":
        return torch.empty(shape, device=device)
    generator = None
    if seed is not None:
        generator = torch.Generator().manual_seed(int(seed))
    kept = torch.rand(shape, generator=generator) >= p
    return (kept / (1 - p)).to(device)


def _gradients(  # noqa: PLR0913, PLR0917 - the bridge's arguments
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    probabilities: torch.Tensor,
    dropout: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = grad.float()
    keys, values = repeat_heads(key, query).float(), repeat_heads(value, query).float()
    weights = probabilities.float() if dropout is None else probabilities.float() * dropout.float()
    grad_value = weights.mT @ wide
    grad_weights = wide @ values.mT
    if dropout is not None:
        grad_weights = grad_weights * dropout.float()
    inner = (grad_weights * probabilities.float()).sum(-1, keepdim=True)
    grad_scores = probabilities.float() * (grad_weights - inner) * scale
    grad_query, grad_key = grad_scores @ keys, grad_scores.mT @ query.float()
    grad_key, grad_value = _sum_heads(grad_key, key), _sum_heads(grad_value, value)
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)


def _sdpa_fwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float,
    scale: float,
    is_causal: bool,
    softmax_mode: str,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
    *,
    seed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    del softmax_mode
    probabilities = _scores(q, k, attention_mask, scale, is_causal, valid_seq_len, seq_padding_type).softmax(-1)
    dropout = _dropout(probabilities.shape, p, q.device, seed) if p else None
    weights = probabilities if dropout is None else probabilities * dropout
    mask = torch.empty(0, device=q.device) if dropout is None else dropout.to(q.dtype)
    return (weights @ repeat_heads(v, q).float()).to(q.dtype), probabilities.to(q.dtype), mask


def _sdpa_fwd_dropout_seed(seed: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _sdpa_fwd(*arguments, seed=seed)


def _sdpa_bwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    P: torch.Tensor,  # noqa: N803 - the bridge's name
    dm: torch.Tensor | None,
    is_causal: bool,
    p: float,
    scale: float,
    fwd_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # The probabilities are those after masking.
    del is_causal, fwd_out
    return _gradients(grad, q, k, v, P, dm if p else None, scale)


def _sdpa_recomp_fwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float,
    scale: float,
    is_causal: bool,
    requires_backward: bool,
    softmax_mode: str,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
    *,
    seed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    del softmax_mode
    scores = _scores(q, k, attention_mask, scale, is_causal, valid_seq_len, seq_padding_type)
    weights = scores.softmax(-1)
    empty = torch.empty(0, device=q.device)
    if p:
        if seed is None:
            seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32).to(q.device)
        weights = weights * _dropout(weights.shape, p, q.device, seed)
    output = (weights @ repeat_heads(v, q).float()).to(q.dtype)
    if not requires_backward:
        return output, empty, empty, empty
    return output, *_softmax_statistics(scores), empty if seed is None else seed


def _sdpa_recomp_fwd_dropout_seed(
    seed: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _sdpa_recomp_fwd(*arguments, seed=seed)


def _sdpa_recomp_bwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    m: torch.Tensor,
    linv: torch.Tensor,
    seed: torch.Tensor | None,
    is_causal: bool,
    p: float,
    scale: float,
    softmax_mode: str,
    fwd_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    del softmax_mode, fwd_out
    probabilities = (_scores(q, k, attention_mask, scale, is_causal) - m).exp() * linv
    dropout = _dropout(probabilities.shape, p, q.device, seed) if p else None
    return _gradients(grad, q, k, v, probabilities, dropout, scale)


def fp8_attention(  # noqa: PLR0913, PLR0917 - the bridge's arguments
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float,
    scale: float,
    is_causal: bool,
    d_scale_q: Scale,
    d_scale_k: Scale,
    d_scale_v: Scale,
    q_scale_s: Scale,
    q_scale_o: Scale,
    d_scale_s: Scale,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return output, probabilities, factors of dropout and the output before its cast to float8.

    Operands are multiplied by their ``d_scale``. Probabilities and output with a ``q_scale`` are cast to float8.
    """
    query, key, value = (scaled(each.float(), by) for each, by in ((q, d_scale_q), (k, d_scale_k), (v, d_scale_v)))
    scores = _scores(query, key, attention_mask, scale, is_causal, valid_seq_len, seq_padding_type)
    probabilities = scores.softmax(-1)
    dropout = _dropout(scores.shape, p, q.device) if p else None
    weights = probabilities if dropout is None else probabilities * dropout
    if q_scale_s is not None:
        weights = saturate(scaled(weights, q_scale_s), torch.float8_e4m3fn).float()
    exact = scaled(weights, d_scale_s) @ repeat_heads(value, query)
    wide = torch.bfloat16 if is_float8(q.dtype) else q.dtype
    output = exact.to(wide) if q_scale_o is None else saturate(scaled(exact, q_scale_o), torch.float8_e4m3fn)
    return output, probabilities, dropout, exact


def _fp8_sdpa_fwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float,
    scale: float,
    is_causal: bool,
    softmax_mode: str,
    d_scale_q: Scale,
    d_scale_k: Scale,
    d_scale_v: Scale,
    q_scale_s: Scale,
    q_scale_o: Scale,
    d_scale_s: Scale,
    is_amax_s: bool,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    del softmax_mode
    scales = (d_scale_q, d_scale_k, d_scale_v, q_scale_s, q_scale_o, d_scale_s)
    arguments = (q, k, v, attention_mask, p, scale, is_causal, *scales, valid_seq_len, seq_padding_type)
    output, probabilities, dropout, _ = fp8_attention(*arguments)
    mask = torch.empty(0, device=q.device) if dropout is None else dropout
    kept = probabilities if q_scale_s is None else saturate(scaled(probabilities, q_scale_s), torch.float8_e4m3fn)
    return output, kept, mask, amax_of(probabilities, requested=is_amax_s)


def _fp8_sdpa_recomp_fwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float,
    scale: float,
    is_causal: bool,
    requires_backward: bool,
    softmax_mode: str,
    d_scale_q: Scale,
    d_scale_k: Scale,
    d_scale_v: Scale,
    q_scale_s: Scale,
    q_scale_o: Scale,
    d_scale_s: Scale,
    is_amax_s: bool,
    is_amax_0: bool,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    del softmax_mode
    scales = (d_scale_q, d_scale_k, d_scale_v, q_scale_s, q_scale_o, d_scale_s)
    arguments = (q, k, v, attention_mask, p, scale, is_causal, *scales, valid_seq_len, seq_padding_type)
    output, probabilities, _, exact = fp8_attention(*arguments)
    empty = torch.empty(0, device=q.device)
    maximum = reciprocal = empty
    if requires_backward:
        query, key = scaled(q.float(), d_scale_q), scaled(k.float(), d_scale_k)
        scores = _scores(query, key, attention_mask, scale, is_causal, valid_seq_len, seq_padding_type)
        maximum, reciprocal = _softmax_statistics(scores)
    amaxes = amax_of(probabilities, requested=is_amax_s), amax_of(exact, requested=is_amax_0)
    return output, maximum, reciprocal, empty, *amaxes


def _fp8_sdpa_bwd(  # noqa: PLR0913, PLR0917 - the bridge's signature
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    P: torch.Tensor,  # noqa: N803 - the bridge's name
    dm: torch.Tensor | None,
    is_causal: bool,
    p: float,
    scale: float,
    d_scale_q: Scale,
    d_scale_k: Scale,
    d_scale_v: Scale,
    d_scale_s: Scale,
    d_scale_do: Scale,
    d_scale_ds: Scale,
    q_scale_s: Scale,
    q_scale_ds: Scale,
    is_amax_ds: bool,
    fwd_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    # The gradient of the scores stays in float32, so its scales cancel.
    del is_causal, fwd_out, d_scale_ds, q_scale_s, q_scale_ds
    query, key, value = (scaled(each.float(), by) for each, by in ((q, d_scale_q), (k, d_scale_k), (v, d_scale_v)))
    wide = scaled(grad.float(), d_scale_do)
    probabilities = scaled(P.float(), d_scale_s if is_float8(P.dtype) else None)
    gradients = _gradients(wide, query, key, value, probabilities, dm if p else None, scale)
    grad_weights = wide @ repeat_heads(value, query).mT
    grad_scores = probabilities * (grad_weights - (grad_weights * probabilities).sum(-1, keepdim=True))
    dtype = torch.bfloat16 if is_float8(q.dtype) else q.dtype
    query, key, value = (gradient.to(dtype) for gradient in gradients)
    return query, key, value, amax_of(grad_scores, requested=is_amax_ds)


_INPUTS: Final = "Tensor q, Tensor k, Tensor v, Tensor? attention_mask, float p, float scale, bool is_causal"
_PADDING: Final = "Tensor? valid_seq_len, str seq_padding_type"
_KEPT: Final = f"{_INPUTS}, str softmax_mode, {_PADDING}"
_RECOMPUTED: Final = f"{_INPUTS}, bool requires_backward, str softmax_mode, {_PADDING}"
_SCALES: Final = ("d_scale_q", "d_scale_k", "d_scale_v", "q_scale_s", "q_scale_o", "d_scale_s")
_TENSOR_SCALES: Final = ", ".join(f"Tensor? {name}" for name in _SCALES)
_NUMBER_SCALES: Final = ", ".join(f"float {name}" for name in _SCALES)
_THREE: Final = "(Tensor, Tensor, Tensor)"
_TENSORS_4: Final = "(Tensor, Tensor, Tensor, Tensor)"
_SIX: Final = "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"

#: Schemas and functions.
OPERATORS: Final = (
    (f"sdpa_fwd({_KEPT}) -> {_THREE}", _sdpa_fwd),
    (f"sdpa_fwd_dropout({_KEPT}) -> {_THREE}", _sdpa_fwd),
    (f"sdpa_fwd_non_dropout({_KEPT}) -> {_THREE}", _sdpa_fwd),
    (f"sdpa_fwd_dropout_seed(Tensor seed, {_KEPT}) -> {_THREE}", _sdpa_fwd_dropout_seed),
    (
        (
            "sdpa_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor P, Tensor? dm, bool is_causal, float p, "
            f"float scale, Tensor fwd_out) -> {_THREE}"
        ),
        _sdpa_bwd,
    ),
    (f"sdpa_recomp_fwd({_RECOMPUTED}) -> {_TENSORS_4}", _sdpa_recomp_fwd),
    (f"sdpa_recomp_fwd_dropout({_RECOMPUTED}) -> {_TENSORS_4}", _sdpa_recomp_fwd),
    (f"sdpa_recomp_fwd_non_dropout({_RECOMPUTED}) -> {_TENSORS_4}", _sdpa_recomp_fwd),
    (f"sdpa_recomp_fwd_dropout_seed(Tensor seed, {_RECOMPUTED}) -> {_TENSORS_4}", _sdpa_recomp_fwd_dropout_seed),
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
    (
        (
            f"fp8_sdpa_recomp_fwd({_INPUTS}, bool requires_backward, str softmax_mode, {_TENSOR_SCALES}, "
            f"bool is_amax_s, bool is_amax_0, {_PADDING}) -> {_SIX}"
        ),
        _fp8_sdpa_recomp_fwd,
    ),
    (
        (
            f"fp8_sdpa_recomp_fwd.scalar({_INPUTS}, bool requires_backward, str softmax_mode, {_NUMBER_SCALES}, "
            f"bool is_amax_s, bool is_amax_0, {_PADDING}) -> {_SIX}"
        ),
        _fp8_sdpa_recomp_fwd,
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
