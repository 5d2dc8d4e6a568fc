"""LAMB, with the gradient clipping of NVIDIA's NVLAMB. Paper: You et al., 2019."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import FusedOptimizer, parameters_with_gradients, validate  # Relative, for type checkers.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedLamb(FusedOptimizer):
    """Adam whose updates are scaled by the ratio of the parameter's norm to the update's norm.

    Arguments are those of NVLAMB. ``use_lamb`` also scales the updates of parameters without weight decay, ``dtype`` is
    that of the gradients in the norm that they are clipped to, and ``fused`` has no effect.

    Raises:
        RuntimeError: If ``amsgrad`` is True.
        ValueError: If a value is out of range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float | None = 1.0,
        use_lamb: bool = False,
        fused: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant")
        validate("lr", lr)
        validate("eps", eps)
        validate("betas[0]", betas[0], less_than=1)
        validate("betas[1]", betas[1], less_than=1)
        self.adam_w_mode = adam_w_mode
        self.set_grad_none = set_grad_none
        self.use_lamb = use_lamb
        self.fused = fused
        self.dtype = dtype
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)

    def zero_grad(self) -> None:  # type: ignore[override] # The bridge's takes no argument.
        """Clear the gradients as ``set_grad_none`` says."""
        super().zero_grad(self.set_grad_none)

    def _step(self) -> None:
        pairs = [pair for group in self.param_groups for pair in parameters_with_gradients(group)]
        if not pairs:
            return
        norm = torch.stack([gradient.to(self.dtype or gradient.dtype).norm() for _, gradient in pairs]).norm()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            max_norm = group["max_grad_norm"]
            clip_divisor = torch.clamp(norm / max_norm, min=1) if max_norm else torch.ones_like(norm)
            for parameter, gradient in parameters_with_gradients(group):
                update = self._update(parameter, gradient / clip_divisor, group)
                parameter.add_(update * self._trust_ratio(parameter, update, group), alpha=-group["lr"])

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if decay and not self.adam_w_mode:
            gradient = gradient.add(parameter, alpha=decay)
        gradient = gradient.to(state["exp_avg"].dtype)
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1 if group["grad_averaging"] else 1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        correction1 = correction2 = 1.0
        if group["bias_correction"]:
            correction1, correction2 = 1 - beta1 ** group["step"], 1 - beta2 ** group["step"]
        update: torch.Tensor = (state["exp_avg"] / correction1) / (
            (state["exp_avg_sq"] / correction2).sqrt() + group["eps"]
        )
        update = update.to(parameter.dtype)
        return update.add(parameter, alpha=decay) if decay and self.adam_w_mode else update

    def _trust_ratio(self, parameter: torch.Tensor, update: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        if not group["weight_decay"] and not self.use_lamb:
            return parameter.new_ones(())
        weight_norm, update_norm = parameter.norm(), update.norm()
        is_valid = (weight_norm > 0) & (update_norm > 0)
        return torch.where(is_valid, weight_norm / update_norm, torch.ones_like(weight_norm))
