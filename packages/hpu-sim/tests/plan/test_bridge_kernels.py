"""Launches of the bridge's kernels in a plan."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.session import Options

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


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
