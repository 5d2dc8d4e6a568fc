"""Steps of optimizers on lists of tensors, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def _total_norm(tensors: Sequence[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    norms = torch.stack([torch.linalg.vector_norm(tensor.float(), norm_type) for tensor in tensors])
    total: torch.Tensor = torch.linalg.vector_norm(norms, norm_type)
    return total


def _lamb_fused_norm(grad: Sequence[torch.Tensor], max_norm: float) -> torch.Tensor:
    # The divisor that clips the gradients.
    return torch.clamp(_total_norm(grad) / max_norm, min=1)


def _lamb_phase1(  # noqa: PLR0913, PLR0917 - the bridge's signature
    gradients: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    exp_avg: Sequence[torch.Tensor],
    exp_avg_sq: Sequence[torch.Tensor],
    out_weight_norms: Sequence[torch.Tensor],
    out_adam_norms: Sequence[torch.Tensor],
    out_adam_steps: Sequence[torch.Tensor],
    clip_global_grad_norm: torch.Tensor,
    grad_averaging: int,
    beta1: float,
    beta2: float,
    epsilon: float,
    bias_correction1: torch.Tensor,
    bias_correction2: torch.Tensor,
    weight_decay: float,
) -> None:
    moments = zip(exp_avg, exp_avg_sq, strict=True)
    results = zip(out_weight_norms, out_adam_norms, out_adam_steps, strict=True)
    for gradient, weight, (moment1, moment2), (weight_norm, adam_norm, adam_step) in zip(
        gradients, weights, moments, results, strict=True
    ):
        value = (gradient / clip_global_grad_norm).to(moment1.dtype)
        moment1.mul_(beta1).add_(value, alpha=1 - beta1 if grad_averaging else 1)
        moment2.mul_(beta2).addcmul_(value, value, value=1 - beta2)
        step = (moment1 / bias_correction1) / ((moment2 / bias_correction2).sqrt() + epsilon)
        step = step.to(weight.dtype).add(weight, alpha=weight_decay)
        adam_step.copy_(step)
        weight_norm.copy_(weight.norm().reshape(weight_norm.shape))
        adam_norm.copy_(step.norm().reshape(adam_norm.shape))


def _lamb_phase2(  # noqa: PLR0913, PLR0917 - the bridge's signature
    weights: Sequence[torch.Tensor],
    adam_norms: Sequence[torch.Tensor],
    weight_norms: Sequence[torch.Tensor],
    adam_steps: Sequence[torch.Tensor],
    neg_step: torch.Tensor,
    wd: float,
    use_lamb: bool,
) -> None:
    for weight, adam_norm, weight_norm, step in zip(weights, adam_norms, weight_norms, adam_steps, strict=True):
        update = step * neg_step
        if wd or use_lamb:
            is_valid = (weight_norm > 0) & (adam_norm > 0)
            update = update * torch.where(is_valid, weight_norm / adam_norm, torch.ones_like(weight_norm))
        weight.add_(update.to(weight.dtype))


def _lars(  # noqa: PLR0913, PLR0917 - the bridge's signature
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    skip_masks: Sequence[int],
    eeta: float,
    weight_decay: float,
    eps: float,
    lr: torch.Tensor,
) -> None:
    for parameter, gradient, mask in zip(params, grads, skip_masks, strict=True):
        if mask:
            weight_norm, grad_norm = parameter.norm(), gradient.norm()
            ratio = eeta * weight_norm / (grad_norm + weight_decay * weight_norm + eps)
            is_valid = (weight_norm > 0) & (grad_norm > 0)
            gradient.add_(parameter, alpha=weight_decay).mul_(torch.where(is_valid, ratio, torch.ones_like(ratio)))
        gradient.mul_(lr)


def _sgd(
    gradients: Sequence[torch.Tensor],
    weights_in: Sequence[torch.Tensor],
    learning_rate: torch.Tensor,
    wd: float,
    **_: Any,
) -> None:
    # Without momentum, its arguments have no effect.
    for gradient, weight in zip(gradients, weights_in, strict=True):
        weight.sub_(gradient.add(weight, alpha=wd) * learning_rate)


def _sgd_momentum(  # noqa: PLR0913, PLR0917 - the bridge's signature
    gradients: Sequence[torch.Tensor],
    weights_in: Sequence[torch.Tensor],
    momentum_in: Sequence[torch.Tensor],
    epoch_num: torch.Tensor,
    learning_rate: torch.Tensor,
    mom: torch.Tensor,
    wd: float,
    damp: float,
    nesterov: bool,
) -> None:
    is_first = epoch_num == 0
    for gradient, weight, buffer in zip(gradients, weights_in, momentum_in, strict=True):
        direction = gradient.add(weight, alpha=wd)
        buffer.copy_(torch.where(is_first, direction, buffer * mom + direction * (1 - damp)))
        direction = direction + buffer * mom if nesterov else buffer
        weight.sub_(direction * learning_rate)


def _ema(model_inputs: Sequence[torch.Tensor], updated_ema: Sequence[torch.Tensor], decay: torch.Tensor) -> None:
    for current, average in zip(model_inputs, updated_ema, strict=True):
        average.copy_(average * decay + current * (1 - decay))


def _clip_norm(grad: Sequence[torch.Tensor], max_norm: torch.Tensor, norm_type: float) -> torch.Tensor:
    norm = _total_norm(grad, norm_type)
    # Avoids a division by zero, as in torch.nn.utils.clip_grad_norm_.
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1)
    for gradient in grad:
        gradient.mul_(factor.to(gradient.dtype))
    return norm


_LISTS: Final = (
    "Tensor[] gradient_vec, Tensor(a!)[] weight_vec, Tensor(b!)[] exp_avg_vec, Tensor(c!)[] exp_avg_sq_vec, "
    "Tensor neg_step_t, float beta1, float beta2, float epsilon"
)
_SCALES: Final = "Tensor(d!)[]? exp_avg_scales=None, Tensor(e!)[]? exp_avg_sq_scales=None"
_CLIP: Final = "Tensor(a!)[] grad, Tensor max_norm, float norm_type"

#: Schemas and functions.
OPERATORS: Final = (
    ("optimizer_lamb_fused_norm(Tensor[] grad, float max_norm) -> Tensor", _lamb_fused_norm),
    (
        (
            "optimizer_lamb_phase1(Tensor[] gradients, Tensor[] weights, Tensor(a!)[] exp_avg, "
            "Tensor(b!)[] exp_avg_sq, Tensor(c!)[] out_weight_norms, Tensor(d!)[] out_adam_norms, "
            "Tensor(e!)[] out_adam_steps, Tensor clip_global_grad_norm, int grad_averaging, float beta1, float beta2, "
            "float epsilon, Tensor bias_correction1, Tensor bias_correction2, float weight_decay) -> ()"
        ),
        _lamb_phase1,
    ),
    (
        (
            "optimizer_lamb_phase2(Tensor(a!)[] weights, Tensor[] adam_norms, Tensor[] weight_norms, "
            "Tensor[] adam_steps, Tensor neg_step, float wd, bool use_lamb) -> ()"
        ),
        _lamb_phase2,
    ),
)

#: Schemas and functions of lazy mode.
LAZY_OPERATORS: Final = (
    (f"optimizer_adamw({_LISTS}, float weight_decay, {_SCALES}) -> ()", optimizer_adamw),
    (f"fused_norm_lazy({_CLIP}) -> Tensor", _clip_norm),
)

#: Schemas and functions of eager mode.
EAGER_OPERATORS: Final = (
    (f"optimizer_adamw({_LISTS}, Tensor weight_decay, bool has_weight_decay, {_SCALES}) -> ()", optimizer_adamw),
    (f"fused_clip_norm({_CLIP}) -> Tensor", _clip_norm),
    (
        (
            "optimizer_lars(Tensor[] params, Tensor(a!)[] grads, int[] skip_masks, float eeta, float weight_decay, "
            "float eps, Tensor lr) -> ()"
        ),
        _lars,
    ),
    (
        (
            "optimizer_sgd(Tensor[] gradients, Tensor(a!)[] weights_in, Tensor(b!) learning_rate, float wd, float mom, "
            "float damp, bool nesterov) -> ()"
        ),
        _sgd,
    ),
    (
        (
            "optimizer_sgd_momentum(Tensor[] gradients, Tensor(a!)[] weights_in, Tensor(b!)[] momentum_in, "
            "Tensor epoch_num, Tensor(c!) learning_rate, Tensor(d!) mom, float wd, float damp, bool nesterov) -> ()"
        ),
        _sgd_momentum,
    ),
    ("optimizer_ema(Tensor[] model_inputs, Tensor(a!)[] updated_ema, Tensor decay) -> ()", _ema),
)
