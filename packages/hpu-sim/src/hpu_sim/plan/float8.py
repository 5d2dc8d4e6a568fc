"""Layers of Intel's transformer engine in a plan: products in float8, and a cast of each of their tensors.

The simulated layers compute with numbers that are rounded to float8, by several operators. A card has one for it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from hpu_sim.plan.recorder import PlanRecorder


def replace_layers(replace: Callable[[Any, str, Any], None], recorder: PlanRecorder) -> None:
    """Replace what the simulated layers compute, by a function that sets an attribute for the time of a plan."""
    import torch
    from habana_frameworks.torch.hpex.experimental._te_impl import linear, scaling

    @contextlib.contextmanager
    def products() -> Iterator[None]:
        recorder.is_float8 = True
        try:
            yield
        finally:
            recorder.is_float8 = False

    def forward(ctx: Any, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *_: Any) -> torch.Tensor:
        ctx.save_for_backward(data.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn))
        ctx.has_bias = bias is not None
        with products():
            return torch.nn.functional.linear(data, weight, bias)

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # The products read the tensors in float8, which the time model takes as half of these bytes.
        data, weight = (gradient.new_empty(()).expand(each.shape) for each in ctx.saved_tensors)
        gradient.to(torch.float8_e5m2)
        flat = gradient.reshape(-1, gradient.shape[-1])
        with products():
            of_data = gradient @ weight
            # A frozen weight, as under an adapter, has no gradient.
            of_weight = flat.T @ data.reshape(-1, data.shape[-1]) if ctx.needs_input_grad[1] else None
        others = (None for _ in ctx.needs_input_grad[3:])
        return of_data, of_weight, flat.sum(0) if ctx.has_bias else None, *others

    replace(linear._FP8Linear, "forward", staticmethod(forward))  # noqa: SLF001 - of this package
    replace(linear._FP8Linear, "backward", staticmethod(backward))  # noqa: SLF001 - of this package
    # The cast of a tensor returns its greatest value as well.
    replace(scaling.Scaling, "update_amax", lambda *_: None)
