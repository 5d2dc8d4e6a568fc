"""The operator lists of ``torch.autocast("hpu")``: the bridge's defaults, and the files that replace them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpu_sim.native import Native

LOWER_VARIABLES: Final = ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST")
FP32_VARIABLES: Final = ("PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST")

# The bridge's defaults at 1.19.0. Unlike on CUDA, batch_norm, dropout, mean and softmax run in the lower precision.
LOWER: Final = frozenset(
    [
        "addmm",
        "addbmm",
        "batch_norm",
        "baddbmm",
        "bmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "dot",
        "dropout",
        "feature_dropout",
        "group_norm",
        "instance_norm",
        "layer_norm",
        "leaky_relu",
        "linear",
        "matmul",
        "mean",
        "mm",
        "mul",
        "mv",
        "softmax",
        "log_softmax",
        "scaled_dot_product_attention",
    ]
)
FP32: Final = frozenset(
    [
        "acos",
        "addcdiv",
        "asin",
        "atan2",
        "bilinear",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cosh",
        "cosine_embedding_loss",
        "cosine_similarity",
        "cross_entropy_loss",
        "dist",
        "div",
        "divide",
        "embedding",
        "embedding_bag",
        "erfinv",
        "exp",
        "expm1",
        "hinge_embedding_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "log",
        "log10",
        "log1p",
        "log2",
        "logsumexp",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "nll_loss",
        "pdist",
        "poisson_nll_loss",
        "pow",
        "reciprocal",
        "renorm",
        "rsqrt",
        "sinh",
        "smooth_l1_loss",
        "soft_margin_loss",
        "softplus",
        "tan",
        "topk",
        "triplet_margin_loss",
        "truediv",
        "true_divide",
    ]
)
PROMOTE: Final = frozenset(
    ["add", "addcmul", "addcdiv", "cat", "div", "exp", "mul", "pow", "sub", "iadd", "truediv", "stack"]
)

# Names of Python's operators, and of functional wrappers, that torch's dispatcher calls otherwise.
_DISPATCHER_NAMES: Final = {
    "truediv": ("true_divide",),
    "iadd": ("add_",),
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": ("nll_loss", "nll_loss_nd"),
    "embedding_bag": ("embedding_bag",),
}

_logger = logging.getLogger(__name__)


def register(native: Native, environment: Mapping[str, str]) -> None:
    """Make operators cast their inputs under ``torch.autocast("hpu")``.

    The lists are read here and never again, as the bridge reads them when it is loaded. An operator in several lists
    goes by the lower precision before float32 before promotion.

    Args:
        native: The compiled device.
        environment: Variables of the process; those of :data:`LOWER_VARIABLES` and :data:`FP32_VARIABLES` name files
            with an operator a line. An unreadable file leaves the default, as on the bridge.
    """
    lower = _read_list(environment, LOWER_VARIABLES, LOWER)
    fp32 = _read_list(environment, FP32_VARIABLES, FP32)
    for policy, names in (("lower", lower), ("fp32", fp32 - lower), ("promote", PROMOTE - lower - fp32)):
        unknown = [name for name in _dispatcher_names(names) if not native.register_autocast(name, policy)]
        if unknown:
            _logger.debug("autocast lists name operators that torch does not have: %s", ", ".join(sorted(unknown)))


def _read_list(environment: Mapping[str, str], variables: Iterable[str], default: frozenset[str]) -> frozenset[str]:
    for variable in variables:
        path = environment.get(variable)
        if path:
            try:
                lines = Path(path).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                _logger.warning("%s=%s cannot be read (%s); the default list is used", variable, path, error)
                return default
            return frozenset(line.strip() for line in lines if line.strip())
    return default


def _dispatcher_names(names: Iterable[str]) -> list[str]:
    return sorted({target for name in names for target in _DISPATCHER_NAMES.get(name, (name,))})
