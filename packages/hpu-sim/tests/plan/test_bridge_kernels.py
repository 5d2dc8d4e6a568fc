"""Launches and attention of the bridge in a plan."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.session import Options

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


def _names(call: object) -> Counter[str]:
    recording = record_call(call, Options())
    return Counter(each.name for each in recording.steady.operations)


def _attend(*, fused: bool) -> None:
    from habana_frameworks.torch.hpex.kernels import FusedSDPA

    attention = FusedSDPA.apply if fused else nn.functional.scaled_dot_product_attention
    for _ in range(2):
        with plan.step():
            query = torch.ones(2, 4, 16, 8, device="hpu", requires_grad=True)
            attention(query, query, query).sum().backward()


def test_attention_of_torch_takes_the_path_of_separate_operators() -> None:
    names = _names(lambda: _attend(fused=False))

    # Two products in the forward pass, and four in the backward pass.
    assert names["aten.bmm"] == 6
    assert not any("scaled_dot_product" in name for name in names)


def test_fused_attention_of_the_bridge_is_one_operator() -> None:
    names = _names(lambda: _attend(fused=True))

    assert names["aten.bmm"] == 0
    assert sum("scaled_dot_product" in name for name in names) == 2


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

    operations = record_call(program, Options()).steady.operations

    assert not any(each.is_launched for each in operations if each.phase == "optimizer")
    assert all(each.is_launched for each in operations if each.phase != "optimizer")
