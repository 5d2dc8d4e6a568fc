"""Launches and attention of the bridge in a plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


def _names(call: Callable[[], object]) -> Counter[str]:
    recording = record_call(call, Options())
    return Counter(each.name for each in recording.steady.operations)


def _attend(*, fused: bool, dropout: float = 0.0) -> None:
    from habana_frameworks.torch.hpex.kernels import FusedSDPA

    attention = FusedSDPA.apply if fused else nn.functional.scaled_dot_product_attention
    for _ in range(2):
        with plan.step():
            query = torch.ones(2, 4, 16, 8, device="hpu", requires_grad=True)
            attention(query, query, query, None, dropout).sum().backward()


def test_attention_of_torch_takes_the_path_of_separate_operators() -> None:
    names = _names(lambda: _attend(fused=False))

    # Two products in the forward pass, and four in the backward pass.
    assert names["aten.bmm"] == 6
    assert not any("scaled_dot_product" in name for name in names)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_fused_attention_of_the_bridge_is_one_operator(dropout: float) -> None:
    names = _names(lambda: _attend(fused=True, dropout=dropout))

    assert names["aten.bmm"] == 0
    assert sum("scaled_dot_product" in name for name in names) == 2


def _launches(call: Callable[[], object]) -> Counter[str]:
    operations = record_call(call, Options()).steady.operations
    return Counter(each.phase for each in operations if each.is_launched)


def test_a_fused_optimizer_is_one_launch() -> None:
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    def program() -> None:
        model = nn.Linear(8, 8).to("hpu")
        optimizer = FusedAdamW(model.parameters(), lr=0.1)
        for _ in range(2):
            with plan.step():
                model(torch.ones(4, 8, device="hpu")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

    assert _launches(program)["optimizer"] == 1


def test_dropout_is_one_launch() -> None:
    def program() -> None:
        for _ in range(2):
            with plan.step():
                nn.functional.dropout(torch.ones(4, 8, device="hpu"))

    # The other one fills the tensor.
    assert _launches(program)["forward"] == 2


def _normalize(data: Tensor) -> Tensor:
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    result: Tensor = FusedRMSNorm.apply(data, torch.ones(8, device="hpu", requires_grad=True), 1e-6)
    return result


def _rotate(data: Tensor) -> Tensor:
    from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV2

    table = torch.ones(1, 4, 8, device="hpu")
    result: Tensor = RotaryPosEmbeddingHelperV2.apply(data, table, table, None)
    return result


@pytest.mark.parametrize("function", [_normalize, _rotate])
def test_a_fused_norm_or_rotation_is_one_launch_in_each_pass(function: Callable[[Tensor], Tensor]) -> None:
    """The sum, its gradient, the product before and its two gradients are launches of their own."""

    def program() -> None:
        weight = torch.ones(8, device="hpu", requires_grad=True)
        for _ in range(2):
            with plan.step():
                function(torch.ones(4, 8, device="hpu") * weight).sum().backward()
                weight.grad = None

    def plain() -> None:
        weight = torch.ones(8, device="hpu", requires_grad=True)
        for _ in range(2):
            with plan.step():
                (torch.ones(4, 8, device="hpu") * weight).sum().backward()
                weight.grad = None

    # The function makes a tensor of weights or angles itself.
    assert _launches(program) - _launches(plain) == Counter(forward=2, backward=1)


def test_an_operator_that_overwrites_a_tensor_does_not_read_it() -> None:
    def program() -> None:
        for _ in range(2):
            with plan.step():
                target = torch.zeros(4, 8, device="hpu")
                target.copy_(torch.ones(4, 8, device="hpu")).zero_()
                torch.ones_like(target)

    operations = record_call(program, Options()).steady.operations

    reads = {each.name: len(each.reads) for each in operations if each.name.startswith("aten")}
    assert reads == {"aten.fill_": 0, "aten.copy_": 1, "aten.zero_": 0}


@pytest.mark.parametrize("fused", [True, False])
def test_attention_that_a_card_decomposes_is_noted(*, fused: bool) -> None:
    notes = record_call(lambda: _attend(fused=fused), Options()).notes

    assert any("`FusedSDPA` of the bridge is one kernel" in note for note in notes) is not fused


def _written_out(data: Tensor) -> Tensor:
    normalized = data * torch.rsqrt(data.pow(2).mean(-1, keepdim=True) + 1e-6)
    first, second = normalized.chunk(2, -1)
    return torch.cat((-second, first), -1)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (_written_out, {"norm", "rotary"}),
        (torch.no_grad()(_written_out), set()),
        (_normalize, set()),
        (_rotate, set()),
    ],
)
def test_a_norm_and_a_rotation_that_are_written_out_are_noted(
    function: Callable[[Tensor], Tensor], named: set[str]
) -> None:
    """With the argument that makes them one kernel, in a training."""

    def program() -> None:
        for _ in range(2):
            with plan.step():
                function(torch.ones(1, 4, 8, device="hpu"))

    notes = " ".join(record_call(program, Options()).notes)

    assert {name for name in ("norm", "rotary") if f"HPUKernels({name}=True)" in notes} == named
