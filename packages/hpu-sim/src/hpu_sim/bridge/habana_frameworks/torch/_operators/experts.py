"""Mixture of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ACTIVATIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


def _run_experts(  # noqa: PLR0913, PLR0917 - the bridge's arguments
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    gates: Sequence[torch.Tensor],
    ups: Sequence[torch.Tensor],
    downs: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted sum of the experts' outputs, and the absolute maximum of each one's intermediate state.

    Every expert computes every token, with the weight 0 where the router did not choose it: no shape depends on data.
    """
    if activation not in _ACTIVATIONS:
        raise RuntimeError(f"`activation` must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")

    def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        # Permuted means the layout of torch.nn.Linear.
        return rows @ (weight.float().mT if permuted_weights else weight.float())

    rows = hidden_states.float()
    total = torch.zeros_like(rows)
    maxima = []
    for index, (gate, up, down) in enumerate(zip(gates, ups, downs, strict=True)):
        is_chosen = expert_routing_table == experts_min + index
        weight = (router_weights.float() * is_chosen).sum(-1, keepdim=True)
        intermediate = _ACTIVATIONS[activation](product(rows, gate)) * product(rows, up)
        maxima.append((intermediate * is_chosen.any(-1, keepdim=True)).abs().max())
        total = total + weight * product(intermediate, down)
    return total.to(hidden_states.dtype), torch.stack(maxima).to(hidden_states.dtype)


def _split(w12: Sequence[torch.Tensor], *, permuted: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    halves = [weight.chunk(2, 0 if permuted else 1) for weight in w12]
    return [half[0] for half in halves], [half[1] for half in halves]


def _mixture_of_experts(  # noqa: PLR0913, PLR0917 - the bridge's signature
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w1: Sequence[torch.Tensor],
    w2: Sequence[torch.Tensor],
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
) -> torch.Tensor:
    del experts_max
    routing = (hidden_states, expert_routing_table, router_weights)
    return _run_experts(*routing, w1, w2, w3, permuted_weights, activation, experts_min)[0]


def _measured(  # noqa: PLR0913, PLR0917 - the bridge's signature
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w1: Sequence[torch.Tensor],
    w2: Sequence[torch.Tensor],
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    del experts_max
    routing = (hidden_states, expert_routing_table, router_weights)
    output, amax = _run_experts(*routing, w1, w2, w3, permuted_weights, activation, experts_min)
    return output, amax if measurement_mode else amax.new_empty(0)


def _fused_weights(  # noqa: PLR0913, PLR0917 - the bridge's signature
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w12: Sequence[torch.Tensor],
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
) -> torch.Tensor:
    routing = (hidden_states, expert_routing_table, router_weights)
    gates, ups = _split(w12, permuted=permuted_weights)
    return _mixture_of_experts(*routing, gates, ups, w3, permuted_weights, activation, experts_min, experts_max)


def _measured_fused_weights(  # noqa: PLR0913, PLR0917 - the bridge's signature
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w12: Sequence[torch.Tensor],
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    routing = (hidden_states, expert_routing_table, router_weights)
    gates, ups = _split(w12, permuted=permuted_weights)
    return _measured(*routing, gates, ups, w3, permuted_weights, activation, experts_min, experts_max, measurement_mode)


_ROUTING: Final = "Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights"
_OPTIONS: Final = "bool permuted_weights, str activation, int experts_min, int experts_max"

#: Schemas and functions.
OPERATORS: Final = (
    (
        f"mixture_of_experts({_ROUTING}, Tensor[] w1, Tensor[] w2, Tensor[] w3, {_OPTIONS}) -> Tensor",
        _mixture_of_experts,
    ),
    (
        (
            f"mixture_of_experts.fp8_measurement({_ROUTING}, Tensor[] w1, Tensor[] w2, Tensor[] w3, {_OPTIONS}, "
            "bool measurement_mode) -> (Tensor, Tensor)"
        ),
        _measured,
    ),
    (f"mixture_of_experts.fused_weights({_ROUTING}, Tensor[] w12, Tensor[] w3, {_OPTIONS}) -> Tensor", _fused_weights),
    (
        (
            f"mixture_of_experts.fp8_measurement_fused_weights({_ROUTING}, Tensor[] w12, Tensor[] w3, {_OPTIONS}, "
            "bool measurement_mode) -> (Tensor, Tensor)"
        ),
        _measured_fused_weights,
    ),
)
