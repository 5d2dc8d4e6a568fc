"""One call of every op in the default lists, with inputs of a given dtype."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Call = Callable[[torch.dtype], torch.Tensor]

# A function, or its name in torch.nn.functional or torch. Names are resolved at each call: HMP replaces functions.
Function = Callable[..., Any] | str


def _make(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return values between 0.1 and 0.9, which every op accepts."""
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape).to("hpu", dtype)


def _one(function: Function, *shape: int, **options: Any) -> Call:
    """Return a call with one tensor."""
    return lambda dtype: _first(_resolve(function)(_make(*shape or (4, 4), dtype=dtype), **options))


def _two(function: Function, first: tuple[int, ...] = (4, 4), second: tuple[int, ...] = (4, 4)) -> Call:
    """Return a call with two tensors."""
    return lambda dtype: _first(_resolve(function)(_make(*first, dtype=dtype), _make(*second, dtype=dtype)))


def _three(function: Function, *shapes: tuple[int, ...]) -> Call:
    """Return a call with three tensors, of shape (4, 4) by default."""
    input_shapes = shapes or ((4, 4),) * 3
    return lambda dtype: _first(_resolve(function)(*(_make(*shape, dtype=dtype) for shape in input_shapes)))


def _classes(function: Function, *shape: int) -> Call:
    """Return a call with scores of shape (4, 4) and integer targets."""

    def call(dtype: torch.dtype) -> torch.Tensor:
        target = torch.arange(4, device="hpu").expand(shape or (4,)).contiguous()
        return _first(_resolve(function)(_make(4, 4, dtype=dtype), target))

    return call


def _signs(function: Function, vectors: int) -> Call:
    """Return a call with one or two batches of vectors and float32 signs."""
    return lambda dtype: _first(_resolve(function)(*(_make(4, 4, dtype=dtype),) * vectors, torch.ones(4, device="hpu")))


def _resolve(function: Function) -> Callable[..., Any]:
    if not isinstance(function, str):
        return function
    resolved: Callable[..., Any] = getattr(functional, function, None) or getattr(torch, function)
    return resolved


def _first(result: Any) -> torch.Tensor:
    tensor: torch.Tensor = result if isinstance(result, torch.Tensor) else result[0]
    return tensor


def _batch_norm(data: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(data, torch.zeros(4, device="hpu"), torch.ones(4, device="hpu"))


def _embedding_bag(weight: torch.Tensor) -> torch.Tensor:
    return functional.embedding_bag(torch.tensor([[0, 1], [2, 3]], device="hpu"), weight)


#: By list and name. Each op of the default lists is here but those in `promote`.
CALLS: dict[str, dict[str, Call]] = {
    "lower": {
        "addbmm": _three("addbmm", (4, 4), (2, 4, 4), (2, 4, 4)),
        "addmm": _three("addmm"),
        "baddbmm": _three("baddbmm", (2, 4, 4), (2, 4, 4), (2, 4, 4)),
        "batch_norm": _one(_batch_norm, 4, 4),
        "bmm": _two("bmm", (2, 4, 4), (2, 4, 4)),
        "conv1d": _two("conv1d", (1, 2, 8), (3, 2, 3)),
        "conv2d": _two("conv2d", (1, 2, 8, 8), (3, 2, 3, 3)),
        "conv3d": _two("conv3d", (1, 2, 4, 4, 4), (3, 2, 3, 3, 3)),
        "conv_transpose1d": _two("conv_transpose1d", (1, 2, 8), (2, 3, 3)),
        "conv_transpose2d": _two("conv_transpose2d", (1, 2, 8, 8), (2, 3, 3, 3)),
        "conv_transpose3d": _two("conv_transpose3d", (1, 2, 4, 4, 4), (2, 3, 3, 3, 3)),
        "dot": _two("dot", (4,), (4,)),
        "dropout": _one("dropout", p=0.5),
        "feature_dropout": _one(lambda data: torch.feature_dropout(data, 0.5, train=True), 2, 4, 4),
        "group_norm": _one("group_norm", 2, 4, 4, num_groups=2),
        "instance_norm": _one("instance_norm", 2, 4, 4),
        "layer_norm": _one("layer_norm", normalized_shape=(4,)),
        "leaky_relu": _one("leaky_relu"),
        "linear": _two("linear"),
        "log_softmax": _one("log_softmax", dim=-1),
        "matmul": _two(lambda first, second: first @ second),
        "mean": _one(lambda data: data.mean()),
        "mm": _two("mm"),
        "mul": _two(lambda first, second: first * second),
        "mv": _two("mv", (4, 4), (4,)),
        "scaled_dot_product_attention": _three(
            "scaled_dot_product_attention", (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4)
        ),
        "softmax": _one(lambda data: data.softmax(-1)),
    },
    "fp32": {
        "acos": _one("acos"),
        "addcdiv": _three("addcdiv"),
        "asin": _one("asin"),
        "atan2": _two("atan2"),
        "bilinear": _three("bilinear", (4, 4), (4, 4), (3, 4, 4)),
        "binary_cross_entropy": _two("binary_cross_entropy"),
        "binary_cross_entropy_with_logits": _two("binary_cross_entropy_with_logits"),
        "cdist": _two("cdist"),
        "cosh": _one("cosh"),
        "cosine_embedding_loss": _signs("cosine_embedding_loss", 2),
        "cosine_similarity": _two("cosine_similarity"),
        "cross_entropy_loss": _classes("cross_entropy"),
        "dist": _two("dist"),
        "div": _two("div"),
        "divide": _two("divide"),
        "embedding": _one(lambda weight: functional.embedding(torch.tensor([0, 1], device="hpu"), weight)),
        "embedding_bag": _one(_embedding_bag),
        "erfinv": _one("erfinv"),
        "exp": _one("exp"),
        "expm1": _one("expm1"),
        "hinge_embedding_loss": _two("hinge_embedding_loss"),
        "huber_loss": _two("huber_loss"),
        "kl_div": _two(lambda first, second: functional.kl_div(first, second, reduction="sum")),
        "l1_loss": _two("l1_loss"),
        "log": _one("log"),
        "log10": _one("log10"),
        "log1p": _one("log1p"),
        "log2": _one("log2"),
        "logsumexp": _one("logsumexp", dim=-1),
        "margin_ranking_loss": _three("margin_ranking_loss"),
        "mse_loss": _two("mse_loss"),
        "multi_margin_loss": _classes("multi_margin_loss"),
        "multilabel_margin_loss": _classes("multilabel_margin_loss", 4, 4),
        "nll_loss": _classes("nll_loss"),
        "pdist": _one("pdist"),
        "poisson_nll_loss": _two("poisson_nll_loss"),
        "pow": _one(lambda data: data**2),
        "reciprocal": _one("reciprocal"),
        "renorm": _one("renorm", p=2, dim=0, maxnorm=1.0),
        "rsqrt": _one("rsqrt"),
        "sinh": _one("sinh"),
        "smooth_l1_loss": _two("smooth_l1_loss"),
        "soft_margin_loss": _two("soft_margin_loss"),
        "softplus": _one("softplus"),
        "tan": _one("tan"),
        "topk": _one("topk", k=2),
        "triplet_margin_loss": _three("triplet_margin_loss"),
        "true_divide": _two("true_divide"),
        "truediv": _two(lambda first, second: first / second),
    },
}
