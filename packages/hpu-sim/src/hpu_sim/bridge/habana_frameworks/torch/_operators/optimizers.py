"""Steps of optimizers on lists of tensors, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def optimizer_adamw(  # noqa: PLR0913, PLR0917 - the bridge's signature
    gradient_vec: Sequence[torch.Tensor],
    weight_vec: Sequence[torch.Tensor],
    exp_avg_vec: Sequence[torch.Tensor],
    exp_avg_sq_vec: Sequence[torch.Tensor],
    neg_step_t: torch.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float | torch.Tensor,
    has_weight_decay: bool = True,
    exp_avg_scales: Sequence[torch.Tensor] | None = None,
    exp_avg_sq_scales: Sequence[torch.Tensor] | None = None,
) -> None:
    """Take an AdamW step in place.

    Raises:
        RuntimeError: If the moments have scales.
    """
    if exp_avg_scales is not None or exp_avg_sq_scales is not None:
        raise RuntimeError("`exp_avg_scales` and `exp_avg_sq_scales` must be None: the simulator has no float8 moments")
    for grad, weight, moment1, moment2 in zip(gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec, strict=True):
        value = grad.to(moment1.dtype)
        moment1.mul_(beta1).add_(value, alpha=1 - beta1)
        moment2.mul_(beta2).addcmul_(value, value, value=1 - beta2)
        if has_weight_decay:
            weight.mul_(weight_decay)
        weight.add_((moment1 / (moment2.sqrt() + epsilon) * neg_step_t).to(weight.dtype))


_LISTS: Final = (
    "Tensor[] gradient_vec, Tensor(a!)[] weight_vec, Tensor(b!)[] exp_avg_vec, Tensor(c!)[] exp_avg_sq_vec, "
    "Tensor neg_step_t, float beta1, float beta2, float epsilon"
)
_SCALES: Final = "Tensor(d!)[]? exp_avg_scales=None, Tensor(e!)[]? exp_avg_sq_scales=None"

#: Schemas and functions of lazy mode, and of eager mode.
LAZY_OPERATORS: Final = ((f"optimizer_adamw({_LISTS}, float weight_decay, {_SCALES}) -> ()", optimizer_adamw),)
EAGER_OPERATORS: Final = (
    (f"optimizer_adamw({_LISTS}, Tensor weight_decay, bool has_weight_decay, {_SCALES}) -> ()", optimizer_adamw),
)
