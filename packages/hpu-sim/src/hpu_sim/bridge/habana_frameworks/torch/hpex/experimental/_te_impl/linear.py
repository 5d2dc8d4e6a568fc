"""A linear layer that can compute in float8."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import (
    FP8GlobalStateManager,
    update_scales_after_backward,
)
from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling, Format
from habana_frameworks.torch.hpex.experimental._te_impl.scaling import Float8, Scaling
from hpu_sim.device.events import as_one_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Linear"]

# Of the serving engine for Gaudi (vllm-gaudi, extension/ops.py); Gaudi 2 ends at 240.
_GAUDI3_E4M3_MAX = 448.0
_float8_kernel = functools.partial(as_one_kernel, dtype="float8")


class _FP8Linear(torch.autograd.Function):
    """Linear map of numbers rounded to float8, in both passes."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - arguments of autograd
        ctx: Any,
        data: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        scalings: dict[str, Scaling],
        recipe: DelayedScaling,
        group: Any,
        update_amax: bool,
    ) -> torch.Tensor:
        measured = recipe if update_amax else None
        fp8_data, fp8_weight = (
            scalings[n].quantize(each, measured) for n, each in (("input", data), ("weight", weight))
        )
        ctx.save_for_backward(fp8_data.data, fp8_data.scale, fp8_weight.data, fp8_weight.scale)
        ctx.scaling, ctx.recipe, ctx.group, ctx.measured = scalings["grad_output"], recipe, group, measured
        ctx.has_bias = bias is not None
        result: torch.Tensor = _linear(fp8_data, fp8_weight, bias)
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,) = grad_outputs
        data, data_scale, weight, weight_scale = ctx.saved_tensors
        fp8_grad = ctx.scaling.quantize(grad, ctx.measured)
        if ctx.measured is not None:
            update_scales_after_backward(ctx.scaling, ctx.recipe, ctx.group)
        of_data = _data_gradient(fp8_grad, Float8(weight, weight_scale, grad.dtype))
        # A frozen weight, as under an adapter, has no gradient.
        trains = ctx.needs_input_grad[1]
        of_weight = _weight_gradient(fp8_grad, Float8(data, data_scale, grad.dtype)) if trains else None
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(0) if ctx.has_bias else None
        return of_data, of_weight, of_bias, None, None, None, None


@_float8_kernel
def _linear(data: Float8, weight: Float8, bias: torch.Tensor | None) -> torch.Tensor:
    return functional.linear(data.restore(), weight.restore(), bias)


@_float8_kernel
def _data_gradient(grad: Float8, weight: Float8) -> torch.Tensor:
    result: torch.Tensor = grad.restore() @ weight.restore()
    return result


@_float8_kernel
def _weight_gradient(grad: Float8, data: Float8) -> torch.Tensor:
    rows, columns = (each.restore().reshape(-1, each.data.shape[-1]) for each in (grad, data))
    result: torch.Tensor = rows.T @ columns
    return result


class Linear(torch.nn.Module):
    """``torch.nn.Linear`` that computes in float8 within :func:`fp8_autocast`.

    ``init_method`` initializes the weight in place. With ``return_bias``, the bias is returned beside the output
    instead of being added, and with ``skip_weight_param_allocation`` each call gets the weight.

    Raises:
        NotImplementedError: If an argument requests tensor parallelism.
    """

    weight: torch.nn.Parameter | None
    bias: torch.nn.Parameter | None

    def __init__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Callable[[], Any] | None = None,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        skip_weight_param_allocation: bool = False,
        device: Any = "hpu",
        minimize_memory: bool = False,
    ) -> None:
        super().__init__()
        del get_rng_state_tracker, parallel_mode, minimize_memory
        if sequence_parallel or tp_size != 1 or tp_group is not None:
            raise NotImplementedError(
                "the simulated transformer engine has no tensor parallelism: "
                "`sequence_parallel`, `tp_group` and `tp_size` must keep their defaults"
            )
        self.in_features = in_features
        self.out_features = out_features
        self.return_bias = return_bias
        self._calls = 0
        self._scalings: dict[str, Scaling] = {}
        kind = {"dtype": params_dtype or torch.get_default_dtype(), "device": device}
        plain = torch.nn.Linear(in_features, out_features, bias=bias, **kind)
        self.register_parameter("weight", None if skip_weight_param_allocation else plain.get_parameter("weight"))
        self.register_parameter("bias", plain.get_parameter("bias") if bias else None)
        if init_method is not None and self.weight is not None:
            init_method(self.weight)

    def extra_repr(self) -> str:
        """Return the sizes in the form of ``torch.nn.Linear``."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def forward(self, inp: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> Any:
        """Return the linear map of ``inp``, of shape ``(..., in_features)``.

        Raises:
            TypeError: If the layer has no weight and ``weight`` is None.
        """
        used_weight = self.weight if weight is None else weight
        if used_weight is None:
            raise TypeError("`weight` must be a tensor with skip_weight_param_allocation=True, got None")
        used_bias = self.bias if bias is None else bias
        added = None if self.return_bias else used_bias
        if FP8GlobalStateManager.is_fp8_enabled():
            output = self._forward_with_autocast(inp, used_weight, added)
        else:
            output = functional.linear(inp, used_weight, added)
        return (output, used_bias) if self.return_bias else output

    def _forward_with_autocast(
        self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        # Under autocast, inputs and outputs have its dtype.
        if hpu.is_autocast_hpu_enabled():
            data = data.to(hpu.get_autocast_hpu_dtype())
        with torch.autocast("hpu", enabled=False):
            return self._forward_fp8(data, weight, bias)

    def _forward_fp8(self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        state = FP8GlobalStateManager
        if not self._scalings:
            self._scalings = _new_scalings(state.recipe.fp8_format, data.device)
        for scaling in self._scalings.values():
            scaling.move_to(data.device)
            if state.force_measurement is not False:
                scaling.advance()
        update_amax = state.force_measurement
        if update_amax is None:
            update_amax = self._calls % state.recipe.interval == 0
        self._calls += state.force_measurement is not False
        weight = weight.to(data.dtype)
        bias = None if bias is None else bias.to(data.dtype)
        if update_amax:
            state.pending += self._scalings["input"], self._scalings["weight"]
        arguments = (data, weight, bias, self._scalings, state.recipe, state.group, update_amax)
        output: torch.Tensor = _FP8Linear.apply(*arguments)  # type: ignore[no-untyped-call] # inherited from torch
        return output

    def get_extra_state(self) -> torch.Tensor:
        """Return scales and amax histories as bytes; no bytes before the layer has computed in float8."""
        if not self._scalings:
            return torch.empty(0, dtype=torch.uint8)
        file = io.BytesIO()
        state = {
            name: {
                "scale": scaling.next_scale.cpu(),
                "amax_history": scaling.amax_history.cpu(),
                "fp8_max": scaling.fp8_max,
                # By name, because torch 2.1 does not load float8 dtypes with `weights_only=True`.
                "dtype": str(scaling.dtype).removeprefix("torch."),
            }
            for name, scaling in self._scalings.items()
        }
        torch.save(state, file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor | None) -> None:
        """Load a return value of :meth:`get_extra_state`."""
        if state is None or state.numel() == 0:
            return
        loaded = torch.load(io.BytesIO(bytes(state.cpu().tolist())), weights_only=True, map_location="cpu")
        device = torch.device("hpu") if self.weight is None else self.weight.device
        for name, saved in loaded.items():
            scaling = Scaling(saved["fp8_max"], getattr(torch, saved["dtype"]), device)
            scaling.next_scale, scaling.amax_history = saved["scale"].to(device), saved["amax_history"].to(device)
            scaling.advance()
            self._scalings[name] = scaling


def _new_scalings(fp8_format: Format, device: torch.device) -> dict[str, Scaling]:
    forward_dtype = torch.float8_e4m3fn if fp8_format is Format.HYBRID else torch.float8_e5m2
    max_fwd, max_bwd = fp8_format.value
    if fp8_format is Format.HYBRID and hpu.get_device_name() == "GAUDI3":
        max_fwd = _GAUDI3_E4M3_MAX
    return {
        "input": Scaling(max_fwd, forward_dtype, device),
        "weight": Scaling(max_fwd, forward_dtype, device),
        "grad_output": Scaling(max_bwd, torch.float8_e5m2, device),
    }
