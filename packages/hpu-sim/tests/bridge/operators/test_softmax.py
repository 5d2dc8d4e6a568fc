"""Operators of softmax and RMS normalization."""

from __future__ import annotations

import pytest
import torch


def _rows(*shape: int) -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randn(*shape).to("hpu")


def test_custom_softmax_is_over_the_last_dimension() -> None:
    rows = _rows(2, 3)

    torch.testing.assert_close(torch.ops.hpu.custom_softmax(rows, 1), rows.softmax(-1))


def test_triangular_softmax_ignores_later_keys() -> None:
    """What the first pass retains gives the same result in a second one."""
    rows = _rows(2, 4, 4)
    is_later = torch.ones(4, 4, dtype=torch.bool, device="hpu").triu(1)
    expected = (rows * 0.5).masked_fill(is_later, -torch.inf).softmax(-1)

    output, reciprocal, maximum = torch.ops.hpu.scaled_triangular_softmax_retain(rows, 0.5)

    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(torch.ops.hpu.scaled_triangular_softmax(rows, 0.5), expected)
    torch.testing.assert_close(torch.ops.hpu.scaled_triangular_softmax(rows, 0.5, reciprocal, maximum), expected)


def test_masked_softmax_adds_the_mask() -> None:
    rows, mask = _rows(2, 4), torch.tensor([0.0, -1e4, 0.0, 0.0], device="hpu")

    torch.testing.assert_close(torch.ops.hpu.scaled_masked_softmax(rows, mask, 2.0), (rows * 2 + mask).softmax(-1))


def test_ragged_softmax_ignores_what_is_beyond_the_count() -> None:
    rows = _rows(2, 4)

    output = torch.ops.hpu.ragged_softmax(rows, -1, False, torch.tensor([1, 3]).to("hpu"))

    assert output[0].tolist() == [1, 0, 0, 0]
    torch.testing.assert_close(output[1, :3], rows[1, :3].softmax(-1))


@pytest.mark.parametrize("operator", ["rms_norm", "rms_norm_fast"])
def test_rms_norm_and_its_backward(operator: str) -> None:
    """The second result is the inverse of the root mean square, which the backward operator takes."""
    rows, gamma, gradient = _rows(2, 3, 4).requires_grad_(), _rows(4).requires_grad_(), _rows(2, 3, 4) + 1
    inverse = (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    expected = rows * inverse * gamma
    gradients = torch.autograd.grad(expected, (rows, gamma), gradient)

    output, inverse_rms = getattr(torch.ops.hpu, operator)(rows, gamma, 1e-6)
    backward = getattr(torch.ops.hpu, f"{operator}_backward")(gradient, rows, gamma, inverse_rms, True, 0)

    torch.testing.assert_close(output.detach(), expected.detach())
    torch.testing.assert_close(inverse_rms.detach(), inverse.detach())
    for mine, theirs in zip(backward, gradients, strict=True):
        torch.testing.assert_close(mine.detach(), theirs)
