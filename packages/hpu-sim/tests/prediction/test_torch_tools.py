"""Canary of the private names of torch that the planner uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hpu_sim.prediction import torch_tools


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_an_autograd_node_has_the_number_that_was_next() -> None:
    numbers = []

    class Record(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
            return inputs * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            numbers.append(torch_tools.node_number())
            return gradient * 2

    weight = torch.ones(2, requires_grad=True) * 1
    number = torch_tools.next_node_number()

    record: Any = Record.apply
    record(weight).sum().backward()

    assert (numbers, torch_tools.node_number()) == ([number], None)


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_a_tensor_of_the_host_has_data() -> None:
    assert torch_tools.has_data(torch.ones(1))
    assert not torch_tools.has_data(torch.ones(1, device="hpu"))
