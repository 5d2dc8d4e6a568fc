"""Operators of one formula each."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize("name", ["exp", "sqrt", "rsqrt"])
def test_fast_functions_equal_torchs(name: str) -> None:
    rows = torch.rand(4, device="hpu") + 1

    assert torch.equal(getattr(torch.ops.hpu, f"{name}_fast_math")(rows), getattr(torch, name)(rows))


def test_plain_index_selects() -> None:
    rows = torch.arange(12, device="hpu").reshape(3, 4)
    indices = [torch.tensor([0, 2], device="hpu"), torch.tensor([1, 3], device="hpu")]

    assert torch.ops.hpu.plain_index(rows, indices).tolist() == [1, 11]


def test_instance_norm_returns_its_statistics() -> None:
    images = torch.randn(2, 3, 4, 4, device="hpu")
    weight, bias = torch.rand(3, device="hpu"), torch.rand(3, device="hpu")

    output, mean, inverse_std = torch.ops.hpu.instance_norm(images, weight, bias, 1e-5)

    torch.testing.assert_close(output, functional.instance_norm(images, weight=weight, bias=bias))
    torch.testing.assert_close(mean, images.mean((2, 3)))
    torch.testing.assert_close(inverse_std, (images.var((2, 3), unbiased=False) + 1e-5).rsqrt())


@pytest.mark.parametrize(("reduction", "name"), [(0, "none"), (1, "mean"), (2, "sum")])
def test_ctc_loss_and_its_backward(reduction: int, name: str) -> None:
    torch.manual_seed(8)
    log_probs = torch.randn(6, 2, 4).log_softmax(-1).requires_grad_()
    targets, inputs, lengths = torch.tensor([[1, 2, 3], [2, 2, 1]]), torch.tensor([6, 5]), torch.tensor([3, 2])
    expected = functional.ctc_loss(log_probs, targets, inputs, lengths, 0, name)
    (gradient,) = torch.autograd.grad(expected.sum(), log_probs)
    arguments = [each.detach().to("hpu") for each in (log_probs, targets, inputs, lengths)]

    loss, alpha = torch.ops.hpu.ctc_loss_custom(*arguments, 0, reduction, False)
    backward = torch.ops.hpu.ctc_loss_custom_backward(
        torch.ones_like(loss), *arguments, loss, alpha, 0, reduction, False
    )

    torch.testing.assert_close(loss.cpu(), expected.detach())
    torch.testing.assert_close(backward.cpu(), gradient)
