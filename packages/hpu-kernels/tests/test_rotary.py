"""Rotary embeddings."""

from typing import Any

import pytest
import torch

from hpu_kernels import HPUKernels, replacement
from hpu_kernels.rotary import NAME

from . import rotary_functions

KERNEL = HPUKernels(attention=False, optimizer=False, norm=False, clip=False)
PLAIN = rotary_functions.apply_rotary_pos_emb


def make(batch: int = 1, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return queries, keys of fewer heads, and cosines and sines."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 6, 8, dtype=dtype), torch.randn(2, 2, 6, 8, dtype=dtype)
    angles = torch.rand(batch, 6, 4).repeat(1, 1, 2)
    return [each.to("hpu") for each in (query, key, angles.cos(), angles.sin())]


def test_rotation_is_the_same() -> None:
    module = rotary_functions.Rotated().to("hpu")
    query, key, cos, sin = make()
    results = []
    for use in list[Any]((PLAIN, module)):
        inputs = [query.detach().requires_grad_(), key.detach().requires_grad_()]
        with KERNEL.apply(module):
            outputs = use(*inputs, cos, sin)
            noted = dict(replacement.calls)
        torch.cat([each.flatten() for each in outputs]).square().cumsum(0).sum().backward()
        results.append([*outputs, *(each.grad for each in inputs)])

    assert noted == {(NAME, "RotaryPosEmbedding"): 1}
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain)
    assert rotary_functions.apply_rotary_pos_emb is PLAIN


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"batch": 2}, {}),
        ({}, {"unsqueeze_dim": 1}),
        ({"dtype": torch.bfloat16}, {}),
    ],
    ids=["positions by sample", "dimension", "dtypes"],
)
def test_call_is_left(options: Any, arguments: Any) -> None:
    module = rotary_functions.Rotated().to("hpu")
    with KERNEL.apply(module):
        module(*make(**options), **arguments)
        assert [outcome[:4] for _, outcome in replacement.calls] == ["left"]


def test_a_function_that_computes_something_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary_functions, "apply_rotary_pos_emb", rotary_functions.interleaved)
    with KERNEL.apply(rotary_functions.Rotated().to("hpu")):
        assert rotary_functions.apply_rotary_pos_emb is rotary_functions.interleaved
        assert [outcome for _, outcome in replacement.calls] == ["left to torch, it computes something else"]
