"""Mixture of experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

_MIN = 2


@pytest.fixture
def experts() -> dict[str, Any]:
    """Return the arguments of three experts from number 2 on, for five tokens with two of six experts each."""
    torch.manual_seed(2)
    return {
        "hidden_states": torch.randn(5, 4),
        "expert_routing_table": torch.stack([torch.randperm(6)[:2] for _ in range(5)]),
        "router_weights": torch.rand(5, 2),
        "w1": [torch.randn(3, 4) for _ in range(3)],
        "w2": [torch.randn(3, 4) for _ in range(3)],
        "w3": [torch.randn(4, 3) for _ in range(3)],
    }


def _expected(experts: dict[str, Any], activation: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and maxima, token by token."""
    output, maxima = torch.zeros(5, 4), torch.zeros(3)
    for token in range(5):
        row = experts["hidden_states"][token]
        for choice in range(2):
            index = int(experts["expert_routing_table"][token, choice]) - _MIN
            if 0 <= index < 3:
                inner = activation(experts["w1"][index] @ row) * (experts["w2"][index] @ row)
                maxima[index] = max(maxima[index], inner.abs().max())
                output[token] += experts["router_weights"][token, choice] * (experts["w3"][index] @ inner)
    return output, maxima


def _on_device(experts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [each.to("hpu") for each in value] if isinstance(value, list) else value.to("hpu")
        for name, value in experts.items()
    }


def _call(operator: Any, experts: dict[str, Any], *, permuted: bool = True, **options: Any) -> Any:
    arguments = {"permuted_weights": permuted, "activation": "silu", "experts_min": _MIN, "experts_max": _MIN + 2}
    return operator(**_on_device(experts), **{**arguments, **options})


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_each_token_is_computed_by_its_experts(activation: str, experts: dict[str, Any]) -> None:
    """Experts of other devices add nothing."""
    output = _call(torch.ops.hpu.mixture_of_experts, experts, activation=activation)

    torch.testing.assert_close(output.cpu(), _expected(experts, getattr(functional, activation))[0])


def test_weights_may_have_the_inputs_first(experts: dict[str, Any]) -> None:
    expected, _ = _expected(experts, functional.silu)
    for name in ("w1", "w2", "w3"):
        experts[name] = [weight.mT.contiguous() for weight in experts[name]]

    torch.testing.assert_close(_call(torch.ops.hpu.mixture_of_experts, experts, permuted=False).cpu(), expected)


@pytest.mark.parametrize("permuted", [True, False])
def test_the_first_two_weights_may_be_one(permuted: bool, experts: dict[str, Any]) -> None:
    expected, _ = _expected(experts, functional.silu)
    both = [torch.cat(pair) for pair in zip(experts.pop("w1"), experts.pop("w2"), strict=True)]
    experts["w12"] = both if permuted else [weight.mT.contiguous() for weight in both]
    experts["w3"] = experts["w3"] if permuted else [weight.mT.contiguous() for weight in experts["w3"]]

    output = _call(torch.ops.hpu.mixture_of_experts, experts, permuted=permuted)

    torch.testing.assert_close(output.cpu(), expected)


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_measurement_returns_the_maximum_of_each_expert(is_fused: bool, experts: dict[str, Any]) -> None:
    """It is that of the input of the last weight, over the tokens of the expert."""
    expected = _expected(experts, functional.silu)
    operator = torch.ops.hpu.mixture_of_experts.fp8_measurement
    if is_fused:
        experts["w12"] = [torch.cat(pair) for pair in zip(experts.pop("w1"), experts.pop("w2"), strict=True)]
        operator = torch.ops.hpu.mixture_of_experts.fp8_measurement_fused_weights

    output, maxima = _call(operator, experts, measurement_mode=True)

    torch.testing.assert_close(output.cpu(), expected[0])
    torch.testing.assert_close(maxima.cpu(), expected[1])


def test_routing_is_not_a_host_sync(experts: dict[str, Any]) -> None:
    """The kernel of a card selects the tokens itself."""
    import hpu_sim

    before = hpu_sim.stats()["host_syncs"]
    _call(torch.ops.hpu.mixture_of_experts, experts)

    assert hpu_sim.stats()["host_syncs"] == before


def test_an_unknown_activation_is_an_error(experts: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="`activation` must be one of gelu, relu, silu, got 'tanh'"):
        _call(torch.ops.hpu.mixture_of_experts, experts, activation="tanh")
