"""Attention takes the CPU's algorithm."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hpu_sim.device.runtime import native

# Before it, the card's attention is composed of products and a softmax, which agree with the CPU's to about 1e-6.
_NEEDS = pytest.mark.needs_torch("2.9", "way for a device to take the CPU's algorithm of attention")


def _inputs(device: str, *, requires_grad: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 33, 16).to(device).requires_grad_(requires_grad) for _ in range(3))
    return query, key, value


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
def test_attention_is_close_to_the_cpus(causal: bool) -> None:
    """With every torch."""
    host, card = (
        functional.scaled_dot_product_attention(*_inputs(device, requires_grad=True), is_causal=causal)
        for device in ("cpu", "hpu")
    )

    torch.testing.assert_close(card.cpu(), host, rtol=1e-5, atol=1e-6)


def _mask() -> torch.Tensor:
    mask = torch.rand(33, 33, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[:, 0] = True
    return mask


@_NEEDS
@pytest.mark.parametrize("kind", ["causal", "full", "masked"])
@pytest.mark.parametrize("requires_grad", [True, False], ids=["training", "inference"])
def test_attention_and_its_gradients_are_the_cpus_to_the_bit(kind: str, requires_grad: bool) -> None:
    """Which algorithm is chosen depends on whether gradients are needed, on the card as well."""
    found = []
    for device in ("cpu", "hpu"):
        inputs = _inputs(device, requires_grad=requires_grad)
        mask = _mask().to(device) if kind == "masked" else None
        output = functional.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=kind == "causal")
        gradients = torch.autograd.grad(output.square().sum(), inputs) if requires_grad else ()
        found.append([tensor.cpu() for tensor in (output, *gradients)])

    assert all(torch.equal(card, host) for host, card in zip(*found, strict=True))


@_NEEDS
def test_attention_is_traced() -> None:
    """torch.compile asks for the choice with tensors that have a shape and no memory."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        query, key, value = (mode.from_tensor(tensor) for tensor in _inputs("hpu", requires_grad=True))
        output = functional.scaled_dot_product_attention(query, key, value)

    assert (output.device.type, output.shape) == ("hpu", (2, 4, 33, 16))


@pytest.mark.needs_torch("2.3", "torch.nn.attention")
def test_the_plain_algorithm_can_be_asked_for() -> None:
    """Torch's context chooses on the card, too."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        host = functional.scaled_dot_product_attention(*_inputs("cpu", requires_grad=False))
        card = functional.scaled_dot_product_attention(*_inputs("hpu", requires_grad=False))

    assert torch.equal(card.cpu(), host)


@_NEEDS
@pytest.mark.parametrize("mode", ["as the CPU", "strict"])
def test_the_scores_of_attention_count_as_memory(mode: str, request: pytest.FixtureRequest) -> None:
    """A card has them: one for the backward pass, and in it another two."""
    if mode == "strict":
        request.getfixturevalue("strict")
    query, key, value = (torch.randn(1, 2, 512, 16, device="hpu", requires_grad=True) for _ in range(3))
    before = native().memory_stats()["in_use"]
    scores = 2 * 512 * 512 * 4

    output = functional.scaled_dot_product_attention(query, key, value)
    kept = native().memory_stats()["in_use"] - before
    native().reset_peak_memory()
    output.sum().backward()
    peak = native().memory_stats()["max_in_use"] - before
    del output

    assert 1.0 < kept / scores < 1.15
    assert 3.0 < peak / scores < 3.3
    assert native().memory_stats()["in_use"] - before < scores / 4
