"""LAMB. Paper: You et al., 2019, with the gradient clipping of NVIDIA's NVLAMB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._base import FusedOptimizer, check, parameters_with_gradients  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from collections.abc import Iterable


class FusedLamb(FusedOptimizer):
    """Adam whose steps are scaled by the ratio of a parameter's norm to its step's.

    Args:
        params: Parameters or groups of them.
        lr: Step size.
        bias_correction: Whether the means are corrected for having begun at zero.
        betas: Shares of the old means of the gradients and of their squares.
        eps: Added to the root of the mean of squares.
        weight_decay: Share of a parameter that is added to its step, or to its gradient without ``adam_w_mode``.
        amsgrad: Not supported.
        adam_w_mode: Whether the decay is decoupled from the gradient.
        grad_averaging: Whether a gradient enters its mean with what the old mean left.
        set_grad_none: Whether :meth:`zero_grad` drops gradients.
        max_grad_norm: Norm of all gradients together beyond which they are scaled down.
        use_lamb: Whether the ratio is used for parameters without weight decay, too.
        fused: Accepted; the maths is the same.
        dtype: Dtype of the means; None for the parameter's.

    Raises:
        RuntimeError: If ``amsgrad`` is asked for.
        ValueError: If a value is out of its range.
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
        max_grad_norm: float = 1.0,
        use_lamb: bool = False,
        fused: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant")
        check("lr", lr)
        check("eps", eps)
        check("betas[0]", betas[0], below=1)
        check("betas[1]", betas[1], below=1)
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

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients; unless told otherwise as ``set_grad_none`` says."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def _step(self) -> None:
        pairs = [pair for group in self.param_groups for pair in parameters_with_gradients(group)]
        if not pairs:
            return
        norm = torch.stack([gradient.norm() for _, gradient in pairs]).norm()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            limit = group["max_grad_norm"]
            shrink = torch.clamp(norm / limit, min=1) if limit > 0 else torch.ones_like(norm)
            for parameter, gradient in parameters_with_gradients(group):
                update = self._update(parameter, gradient / shrink, group)
                parameter.add_(update * self._ratio(parameter, update, group), alpha=-group["lr"])

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter, dtype=self.dtype)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=self.dtype)
        if decay and not self.adam_w_mode:
            gradient = gradient.add(parameter, alpha=decay)
        gradient = gradient.to(state["exp_avg"].dtype)
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1 if group["grad_averaging"] else 1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        first = second = 1.0
        if group["bias_correction"]:
            first, second = 1 - beta1 ** group["step"], 1 - beta2 ** group["step"]
        update: torch.Tensor = (state["exp_avg"] / first) / ((state["exp_avg_sq"] / second).sqrt() + group["eps"])
        update = update.to(parameter.dtype)
        return update.add(parameter, alpha=decay) if decay and self.adam_w_mode else update

    def _ratio(self, parameter: torch.Tensor, update: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        if not group["weight_decay"] and not self.use_lamb:
            return parameter.new_ones(())
        weight, step = parameter.norm(), update.norm()
        return torch.where((weight > 0) & (step > 0), weight / step, torch.ones_like(weight))
