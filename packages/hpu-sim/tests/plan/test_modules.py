"""Modules that run in a plan, forward and backward."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


class _Block(nn.Module):
    """Siblings of which torch runs the backward passes beside each other, and work of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.z_dropout = nn.Dropout(0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        states = self.second(self.first(self.z_dropout(inputs)))
        weights: Tensor = torch.softmax(states @ states.transpose(0, 1), dim=-1)
        output: Tensor = weights @ states
        return output


def _places(*, recompute: bool) -> Counter[tuple[str, str, str]]:
    """Return the part of the step, the operator and the module of each operator of a step."""

    def program() -> None:
        block = _Block().to("hpu")
        for _ in range(2):
            with plan.step():
                inputs = torch.ones(4, 8, device="hpu", requires_grad=True)
                output = checkpoint(block, inputs, use_reentrant=False) if recompute else block(inputs)
                output.sum().backward()

    operations = record_call(program, Options()).steady.operations
    return Counter((each.phase, each.name.partition(".")[2], each.module) for each in operations)


@pytest.mark.parametrize("recompute", [False, True])
def test_an_operator_of_the_backward_pass_belongs_to_the_module_that_made_it_necessary(*, recompute: bool) -> None:
    found = _places(recompute=recompute)

    for name in ("first", "second"):
        assert found["backward", "mm", f"_Block.{name}"] == 2
        assert found["forward", "addmm", f"_Block.{name}"] == 1
    assert found["backward", "_softmax_backward_data", "_Block"] == 1
    # The last product is not recomputed: nothing in the backward pass needs it.
    assert found["backward", "mm", "_Block"] == 4 + recompute
    assert found["backward", "mm", "_Block.z_dropout"] == 0


def test_recomputed_operators_belong_to_their_modules() -> None:
    found = _places(recompute=True)

    assert found["backward", "addmm", "_Block.first"] == found["backward", "addmm", "_Block.second"] == 1
    assert found["backward", "_softmax", "_Block"] == 1
