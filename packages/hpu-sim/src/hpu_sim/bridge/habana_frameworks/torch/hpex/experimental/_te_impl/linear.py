"""A linear layer that can compute in float8."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.experimental._te_impl.fp8 import FP8GlobalStateManager
from habana_frameworks.torch.hpex.experimental._te_impl.recipe import DelayedScaling, Format
from habana_frameworks.torch.hpex.experimental._te_impl.scaling import Scaling

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Linear"]

_TENSORS: Final = ("input", "weight", "gradient")


class _Float8Linear(torch.autograd.Function):
    """A linear map of rounded numbers, whose gradients are rounded, too."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - what autograd hands over
        ctx: Any,
        data: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        scalings: dict[str, Scaling],
        recipe: DelayedScaling,
        measures: bool,
    ) -> torch.Tensor:
        rounded, rounded_weight = scalings["input"].round(data), scalings["weight"].round(weight)
        ctx.save_for_backward(rounded, rounded_weight)
        ctx.scaling, ctx.recipe, ctx.measures = scalings["gradient"], recipe, measures
        ctx.has_bias = bias is not None
        return functional.linear(rounded, rounded_weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        data, weight = ctx.saved_tensors
        rounded = ctx.scaling.round(gradient)
        if ctx.measures:
            ctx.scaling.measure(gradient, ctx.recipe)
            ctx.scaling.rescale(ctx.recipe)
        flat = rounded.reshape(-1, rounded.shape[-1])
        bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if ctx.has_bias else None
        return rounded @ weight, flat.T @ data.reshape(-1, data.shape[-1]), bias, None, None, None


class Linear(torch.nn.Module):
    """``torch.nn.Linear``, in float8 within :func:`fp8_autocast`.

    Args:
        in_features: Size of an input.
        out_features: Size of an output.
        sequence_parallel: Not supported.
        tp_group: Not supported.
        tp_size: Ranks that share the weight; only 1 is supported.
        get_rng_state_tracker: Accepted; there are no shared weights to draw.
        init_method: Fills the weight in place; None for what ``torch.nn.Linear`` does.
        bias: Whether there is a bias.
        return_bias: Whether the bias is returned beside the output instead of being added.
        params_dtype: Dtype of the parameters; None for torch's default.
        parallel_mode: Accepted; with one rank there is nothing to split.
        skip_weight_param_allocation: Whether the weight is given with every call instead.
        device: Where the parameters lie.
        minimize_memory: Accepted; nothing is kept between calls.

    Raises:
        NotImplementedError: If the weight is to be shared between ranks.
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
        """Return the sizes, as ``torch.nn.Linear`` does."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def forward(self, inp: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> Any:
        """Return the linear map of ``inp``, of shape ``(..., in_features)``.

        Args:
            inp: The input.
            weight: Weight to use instead of the layer's own.
            bias: Bias to use instead of the layer's own.

        Raises:
            TypeError: If the layer has no weight and is given none.
        """
        used_weight = self.weight if weight is None else weight
        if used_weight is None:
            raise TypeError("`weight` must be given to a layer with skip_weight_param_allocation=True, got None")
        used_bias = self.bias if bias is None else bias
        added = None if self.return_bias else used_bias
        if FP8GlobalStateManager.is_fp8_enabled():
            output = self._in_float8(inp, used_weight, added)
        else:
            output = functional.linear(inp, used_weight, added)
        return (output, used_bias) if self.return_bias else output

    def _in_float8(self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # The engine takes part in autocast: what goes in and comes out has its dtype, as the backward pass expects.
        if hpu.is_autocast_hpu_enabled():
            data = data.to(hpu.get_autocast_hpu_dtype())
        with torch.autocast("hpu", enabled=False):
            return self._of_rounded(data, weight, bias)

    def _of_rounded(self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        state = FP8GlobalStateManager
        if not self._scalings:
            self._scalings = _new_scalings(state.recipe.fp8_format, data.device)
        for scaling in self._scalings.values():
            scaling.follow(data)
        measures = state.force_measurement
        if measures is None:
            measures = self._calls % state.recipe.interval == 0
        self._calls += 1
        weight = weight.to(data.dtype)
        bias = None if bias is None else bias.to(data.dtype)
        if measures:
            for name, tensor in (("input", data), ("weight", weight)):
                self._scalings[name].measure(tensor, state.recipe)
                state.measured.append(self._scalings[name])
        arguments = (data, weight, bias, self._scalings, state.recipe, measures)
        output: torch.Tensor = _Float8Linear.apply(*arguments)  # type: ignore[no-untyped-call] # inherited from torch
        return output

    def get_extra_state(self) -> torch.Tensor:
        """Return scales and histories as bytes; none before the layer has computed in float8."""
        if not self._scalings:
            return torch.empty(0, dtype=torch.uint8)
        file = io.BytesIO()
        state = {
            name: {"scale": s.scale.cpu(), "history": s.history.cpu(), "largest": s.largest, "dtype": _name(s.dtype)}
            for name, s in self._scalings.items()
        }
        torch.save(state, file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor | None) -> None:
        """Take over what :meth:`get_extra_state` returned."""
        if state is None or state.numel() == 0:
            return
        loaded = torch.load(io.BytesIO(bytes(state.cpu().tolist())), weights_only=True, map_location="cpu")
        device = torch.device("hpu") if self.weight is None else self.weight.device
        for name, kept in loaded.items():
            scaling = Scaling(kept["largest"], getattr(torch, kept["dtype"]), device)
            scaling.scale, scaling.history = kept["scale"].to(device), kept["history"].to(device)
            self._scalings[name] = scaling


def _name(dtype: torch.dtype) -> str:
    """Return what torch has a dtype as. Loading weights only, torch 2.1 takes no float8 for one."""
    return str(dtype).removeprefix("torch.")


def _new_scalings(form: Format, device: torch.device) -> dict[str, Scaling]:
    forward = torch.float8_e4m3fn if form is Format.HYBRID else torch.float8_e5m2
    kinds = {
        "input": (form.value.max_fwd, forward),
        "weight": (form.value.max_fwd, forward),
        "gradient": (form.value.max_bwd, torch.float8_e5m2),
    }
    return {name: Scaling(*kinds[name], device) for name in _TENSORS}
