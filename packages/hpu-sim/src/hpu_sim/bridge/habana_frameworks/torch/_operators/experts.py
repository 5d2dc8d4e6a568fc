"""Mixture of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ACTIVATIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


def _mixture_of_experts(  # noqa: PLR0913 - the bridge's arguments
    *,
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    w1: Sequence[torch.Tensor] = (),
    w2: Sequence[torch.Tensor] = (),
    w12: Sequence[torch.Tensor] = (),
    measurement_mode: bool | None = None,
    **_: Any,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted sum of the experts' outputs, and the absolute maximum of each one's intermediate state.

    Every expert computes every token, with the weight 0 where the router did not choose it: no shape depends on data.
    """
    if activation not in _ACTIVATIONS:
        raise RuntimeError(f"`activation` must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    # Permuted means the layout of torch.nn.Linear.
    fused = [weight.chunk(2, 0 if permuted_weights else 1) for weight in w12]
    gates = w1 or [halves[0] for halves in fused]
    ups = w2 or [halves[1] for halves in fused]

    def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rows @ (weight.float().mT if permuted_weights else weight.float())

    rows = hidden_states.float()
    total = torch.zeros_like(rows)
    maxima = []
    for index, (gate, up, down) in enumerate(zip(gates, ups, w3, strict=True)):
        is_chosen = expert_routing_table == experts_min + index
        weight = (router_weights.float() * is_chosen).sum(-1, keepdim=True)
        intermediate = _ACTIVATIONS[activation](product(rows, gate)) * product(rows, up)
        maxima.append((intermediate * is_chosen.any(-1, keepdim=True)).abs().max())
        total = total + weight * product(intermediate, down)
    output, amax = total.to(hidden_states.dtype), torch.stack(maxima).to(hidden_states.dtype)
    if measurement_mode is None:
        return output
    return output, amax if measurement_mode else amax.new_empty(0)


_ROUTING: Final = "Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights"
_OPTIONS: Final = "bool permuted_weights, str activation, int experts_min, int experts_max"
_WEIGHTS: Final = "Tensor[] w1, Tensor[] w2, Tensor[] w3"
_FUSED: Final = "Tensor[] w12, Tensor[] w3"
_MEASURED: Final = "bool measurement_mode) -> (Tensor, Tensor)"

#: Schemas and functions.
OPERATORS: Final = tuple(
    (f"mixture_of_experts{schema}", _mixture_of_experts)
    for schema in (
        f"({_ROUTING}, {_WEIGHTS}, {_OPTIONS}) -> Tensor",
        f".fp8_measurement({_ROUTING}, {_WEIGHTS}, {_OPTIONS}, {_MEASURED}",
        f".fused_weights({_ROUTING}, {_FUSED}, {_OPTIONS}) -> Tensor",
        f".fp8_measurement_fused_weights({_ROUTING}, {_FUSED}, {_OPTIONS}, {_MEASURED}",
    )
)
