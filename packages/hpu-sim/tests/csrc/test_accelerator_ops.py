"""Operators that the bridge has and the CPU lacks."""

from __future__ import annotations

import torch
from torch.nn import functional


def test_fused_dropout_keeps_and_scales_by_its_mask() -> None:
    """Its probability is that of keeping an element."""
    rows = torch.ones(100, device="hpu", requires_grad=True)

    output, mask = torch._fused_dropout(rows, 0.25)
    output.sum().backward()

    assert mask.dtype == torch.uint8
    assert 0 < int(mask.sum()) < 100
    assert rows.grad is not None
    assert torch.equal(output, mask * 4.0)
    assert torch.equal(rows.grad, mask * 4.0)


def test_linear_backward_is_the_gradient_of_linear() -> None:
    inputs = torch.randn(2, 3, 4, device="hpu", requires_grad=True)
    weight, bias = torch.randn(5, 4, device="hpu", requires_grad=True), torch.randn(5, device="hpu", requires_grad=True)
    grad = torch.randn(2, 3, 5, device="hpu")
    expected = torch.autograd.grad(functional.linear(inputs, weight, bias), (inputs, weight, bias), grad)

    with torch.no_grad():
        actual = torch.ops.aten.linear_backward(inputs, grad, weight, [True, True, True])
        partial = torch.ops.aten.linear_backward(inputs, grad, weight, [False, True, False])

    torch.testing.assert_close(actual, expected)
    assert partial[0] is None
    assert torch.equal(partial[1], actual[1])


def test_an_output_is_resized() -> None:
    output = torch.ops.aten._resize_output_(torch.empty(0, device="hpu"), [2, 3], torch.device("hpu"))

    assert output.shape == (2, 3)
