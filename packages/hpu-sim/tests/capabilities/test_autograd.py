"""Gradients, hooks, activation checkpointing and compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_an_in_place_change_of_a_saved_tensor_is_an_error() -> None:
    """Torch detects in-place changes on the device."""
    x = torch.ones(2, device="hpu", requires_grad=True)
    y = x.exp()
    y.mul_(2)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.needs_torch("2.1", "such hooks")
def test_a_post_accumulate_grad_hook_is_called() -> None:
    """Optimizers that step inside the backward pass need it."""
    x = torch.ones(2, device="hpu", requires_grad=True)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad))

    (x * 3).sum().backward()

    assert [gradient.tolist() for gradient in seen] == [[3, 3]]


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


@pytest.fixture
def _fresh_dynamo() -> Iterator[None]:
    """Reset dynamo before and after a test, and restore the optimizers."""
    import torch._dynamo

    # Dynamo of torch < 2.3 removes the step hooks of optimizers.
    kinds: list[Any] = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    steps = [(kind.step, dict(vars(kind.step))) for kind in kinds]
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    for kind, (step, marks) in zip(kinds, steps, strict=True):
        kind.step = step
        vars(step).clear()
        vars(step).update(marks)


@pytest.mark.needs_torch("2.1", "compiler for Python 3.11")
@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_computes_the_same(backend: str) -> None:
    """The tracer knows the device in both passes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1)).to("hpu")
    x = torch.randn(3, 4, device="hpu")
    expected = model(x).sum()
    gradients = torch.autograd.grad(expected, list(model.parameters()))

    result = torch.compile(model, backend=backend, fullgraph=True)(x).sum()
    result.backward()

    assert torch.equal(result, expected)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)


def test_functional_transforms_work() -> None:
    x = torch.arange(3.0, device="hpu")

    gradient = torch.func.grad(lambda y: (y**2).sum())(x)
    rows = torch.func.vmap(lambda row: row.sum())(x.expand(2, 3))

    assert gradient.tolist() == [0, 2, 4]
    assert rows.tolist() == [3, 3]
