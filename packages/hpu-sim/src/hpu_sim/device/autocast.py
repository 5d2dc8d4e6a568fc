"""Operator lists of ``torch.autocast("hpu")``.

The defaults in ``data/op_lists/`` are those of the bridge 1.19.0. Unlike on CUDA, batch_norm, dropout, mean and softmax
run in the lower precision.
"""

from __future__ import annotations

import logging
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpu_sim.device.native import Native

LOWER_VARIABLES: Final = ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST")
FP32_VARIABLES: Final = ("PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST")

# Python operators and functional wrappers whose dispatcher operators have other names.
_DISPATCHER_NAMES: Final = {
    "truediv": ("true_divide",),
    "iadd": ("add_",),
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": ("nll_loss", "nll_loss_nd"),
    "embedding_bag": ("embedding_bag",),
}

_logger = logging.getLogger(__name__)


def register(native: Native, environment: Mapping[str, str]) -> None:
    """Register the casts of operators under ``torch.autocast("hpu")``.

    The lists are read once, as the bridge reads them when it is loaded. The lower precision takes precedence over
    float32, and float32 over promotion.

    Args:
        native: The C++ extension.
        environment: Environment of the process. :data:`LOWER_VARIABLES` and :data:`FP32_VARIABLES` name files with one
            operator per line. An unreadable file means the default list, as in the bridge.
    """
    # hpu-doctor verify: list-replaces-the-default, autocast-lists
    lower = _user_list(environment, LOWER_VARIABLES) or default_list("autocast_lower")
    fp32 = (_user_list(environment, FP32_VARIABLES) or default_list("autocast_fp32")) - lower
    promote = default_list("autocast_promote") - lower - fp32
    unknown = native.register_autocast(
        {
            target: policy
            for policy, names in (("promote", promote), ("fp32", fp32), ("lower", lower))
            for name in names
            for target in _DISPATCHER_NAMES.get(name, (name,))
        }
    )
    if unknown:
        _logger.debug("autocast lists name operators that torch does not have: %s", ", ".join(sorted(unknown)))


def default_list(name: str) -> frozenset[str]:
    """Return a default list by the name of its file in ``data/op_lists/``."""
    return _parse(resources.files("hpu_sim.data").joinpath(f"op_lists/{name}.txt").read_text(encoding="utf-8"))


def _user_list(environment: Mapping[str, str], variables: Iterable[str]) -> frozenset[str]:
    """Return the operators in the file of the first variable that is set; none if it is unset or unreadable."""
    for variable in variables:
        path = environment.get(variable)
        if path:
            try:
                return _parse(Path(path).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                _logger.warning(
                    "%s must be a readable file, got %s (%s); the default list is used", variable, path, error
                )
                return frozenset()
    return frozenset()


def _parse(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.splitlines() if line.strip())
