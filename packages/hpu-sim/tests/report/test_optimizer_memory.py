"""What optimizers hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpu_sim.report.optimizer_memory import OptimizerMemoryTracker
from hpu_sim.report.schema import OptimizerMemory


def _trained(optimizer: type[torch.optim.Optimizer], device: str = "hpu", **options: Any) -> torch.optim.Optimizer:
    parameters = [nn.Parameter(torch.ones(10, device=device)), nn.Parameter(torch.ones(5, device=device))]
    made = optimizer(parameters, **options)
    (parameters[0].sum() + parameters[1].sum()).backward()
    made.step()
    return made


def test_parameters_gradients_and_moments_are_summed() -> None:
    """Adam's step counters lie on the host and do not count."""
    states = OptimizerMemoryTracker()
    states.measure(_trained(torch.optim.Adam))

    assert states.total() == OptimizerMemory(60, 60, 120)


def test_each_optimizer_is_looked_at_once() -> None:
    """They are summed."""
    states = OptimizerMemoryTracker()
    first, second = _trained(torch.optim.SGD, lr=0.1), _trained(torch.optim.SGD, lr=0.1, momentum=0.9)
    for _ in range(3):
        states.measure(first)
        states.measure(second)

    assert states.total() == OptimizerMemory(120, 120, 60)


def test_gradients_that_are_gone_do_not_count() -> None:
    """A program may free them in a hook of its own."""
    optimizer = _trained(torch.optim.SGD, lr=0.1)
    optimizer.zero_grad(set_to_none=True)
    states = OptimizerMemoryTracker()
    states.measure(optimizer)

    assert states.total() == OptimizerMemory(60, 0, 0)


def test_offloaded_parameters_make_it_unknown() -> None:
    """What lies on the host says nothing about the card."""
    states = OptimizerMemoryTracker()
    states.measure(_trained(torch.optim.SGD, lr=0.1))
    states.measure(_trained(torch.optim.SGD, device="cpu", lr=0.1))

    assert states.total() is None


def test_before_the_first_step_nothing_is_known() -> None:
    """There is no optimizer yet."""
    assert OptimizerMemoryTracker().total() is None
