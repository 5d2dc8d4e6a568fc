"""Activation checkpointing and functional transforms."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def _block() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.GELU()).to("hpu")


@pytest.mark.needs_torch("2.1", "checkpointing that keeps other random numbers than CUDA's")
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_activation_checkpointing_computes_the_same(reentrant: bool) -> None:
    """Dropout draws the same numbers in the recomputation."""
    block, x = _block(), torch.randn(4, 3, device="hpu", requires_grad=True)
    torch.manual_seed(1)
    expected = block(x)
    gradients = torch.autograd.grad(expected.sum(), [x, *block.parameters()])

    torch.manual_seed(1)
    result = checkpoint(block, x, use_reentrant=reentrant)
    result.sum().backward()

    assert torch.equal(result, expected)
    for tensor, gradient in zip([x, *block.parameters()], gradients, strict=True):
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, gradient)


def test_functional_transforms_work() -> None:
    x = torch.arange(3.0, device="hpu")

    gradient = torch.func.grad(lambda y: (y**2).sum())(x)
    rows = torch.func.vmap(lambda row: row.sum())(x.expand(2, 3))

    assert gradient.tolist() == [0, 2, 4]
    assert rows.tolist() == [3, 3]
