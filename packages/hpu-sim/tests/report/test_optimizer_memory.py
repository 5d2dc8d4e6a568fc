"""Tests of the memory of optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpu_sim.report.optimizer_memory import OptimizerMemoryTracker
from hpu_sim.report.schema import OptimizerMemory


def _step(optimizer: type[torch.optim.Optimizer], device: str = "hpu", **options: Any) -> torch.optim.Optimizer:
    """Return an optimizer of 15 parameters that has completed a step."""
    parameters = [nn.Parameter(torch.ones(10, device=device)), nn.Parameter(torch.ones(5, device=device))]
    stepped = optimizer(parameters, **options)
    (parameters[0].sum() + parameters[1].sum()).backward()
    stepped.step()
    return stepped


def test_parameters_gradients_and_moments_are_summed() -> None:
    """The step counters of Adam are on the CPU and do not count."""
    tracker = OptimizerMemoryTracker()
    tracker.measure(_step(torch.optim.Adam))

    assert tracker.total() == OptimizerMemory(60, 60, 120)


def test_each_optimizer_is_measured_once() -> None:
    tracker = OptimizerMemoryTracker()
    first, second = _step(torch.optim.SGD, lr=0.1), _step(torch.optim.SGD, lr=0.1, momentum=0.9)
    for _ in range(3):
        tracker.measure(first)
        tracker.measure(second)

    assert tracker.total() == OptimizerMemory(120, 120, 60)


def test_freed_gradients_do_not_count() -> None:
    optimizer = _step(torch.optim.SGD, lr=0.1)
    optimizer.zero_grad(set_to_none=True)
    tracker = OptimizerMemoryTracker()
    tracker.measure(optimizer)

    assert tracker.total() == OptimizerMemory(60, 0, 0)


def test_offloaded_parameters_make_the_total_unknown() -> None:
    tracker = OptimizerMemoryTracker()
    tracker.measure(_step(torch.optim.SGD, lr=0.1))
    tracker.measure(_step(torch.optim.SGD, device="cpu", lr=0.1))

    assert tracker.total() is None


def test_total_is_unknown_before_the_first_step() -> None:
    assert OptimizerMemoryTracker().total() is None
