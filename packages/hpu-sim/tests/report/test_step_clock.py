"""The clock of a real run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import hpu_sim

if TYPE_CHECKING:
    from hpu_sim.report.step_clock import StepClock

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


def _run(steps: int = 4) -> dict[str, int]:
    """Train, and return the counters of the run."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("hpu")
    optimizer = torch.optim.AdamW(model.parameters())
    before = hpu_sim.stats()
    for _ in range(steps):
        model(torch.ones(16, 64, device="hpu")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value - before[name] for name, value in hpu_sim.stats().items() if not name.endswith("bytes")}


def test_each_line_has_its_part_of_the_step(clock: StepClock) -> None:
    _run()

    assert clock.predicted is not None
    assert any(each.name.startswith(f"{__file__}:") for each in clock.predicted.costs)
    time = clock.predicted
    assert 0 < time.fast_seconds < time.seconds < time.slow_seconds
    assert sum(each.seconds for each in clock.predicted.costs) == pytest.approx(time.seconds, rel=1e-6)


def test_the_clock_replaces_no_function(clock: StepClock) -> None:
    """A compiled module would be compiled again, because torch.compile guards the functions that it calls."""
    functional, seen = nn.functional, []
    before = functional.scaled_dot_product_attention, functional.dropout, nn.utils.clip_grad_norm_

    class Watched(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.append((functional.scaled_dot_product_attention, functional.dropout, nn.utils.clip_grad_norm_))
            return inputs

    model = nn.Sequential(nn.Linear(8, 8), Watched()).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        model(torch.ones(4, 8, device="hpu")).sum().backward()
        optimizer.step()

    assert clock.predicted is not None
    assert seen == [before] * 4


def test_the_clock_changes_no_counter(clock: StepClock) -> None:
    measured = _run()
    clock.close()

    assert measured == _run()


def test_a_run_of_two_steps_has_no_clock(clock: StepClock) -> None:
    _run(steps=2)
    clock.close()

    assert clock.predicted is None


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("fused", [False, True], ids=["torch", "fused"])
def test_what_the_bridge_has_a_kernel_for_is_noted(clock: StepClock, fused: bool, compiled: bool) -> None:
    from habana_frameworks.torch.dynamo.compile_backend.backends import hpu_backend
    from habana_frameworks.torch.hpex.kernels import FusedSDPA
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    model = nn.Linear(8, 8).to("hpu")
    optimizer = (FusedAdamW if fused else torch.optim.AdamW)(model.parameters(), lr=0.1)

    def attend(inputs: torch.Tensor) -> torch.Tensor:
        query = model(inputs)
        function = FusedSDPA.apply if fused else nn.functional.scaled_dot_product_attention
        result: torch.Tensor = function(query, query, query)
        return result.sum()

    forward = torch.compile(attend, backend=hpu_backend) if compiled else attend
    for _ in range(4):
        forward(torch.ones(1, 1, 4, 8, device="hpu")).backward()
        optimizer.step()

    (step,) = clock.recording.steps
    assert {kernel for kernel in ("FusedSDPA", "FusedAdamW") if kernel in str(clock.notes)} == (
        set() if fused else {"FusedSDPA", "FusedAdamW"}
    )
    assert any("scaled_dot_product" in each.name for each in step.operations) is fused


def test_an_optimizer_that_another_one_steps_for_is_not_noted(clock: StepClock) -> None:
    """So do hpu-kernels, from a hook."""
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    model = nn.Linear(8, 8).to("hpu")
    optimizer, fused = torch.optim.AdamW(model.parameters()), FusedAdamW(model.parameters())

    def step(*_: object) -> None:
        fused.step()
        optimizer.zero_grad()

    optimizer.register_step_pre_hook(step)
    model(torch.ones(4, 8, device="hpu")).sum().backward()
    optimizer.step()

    assert clock.notes == set()


def test_the_clock_knows_the_optimizer_and_the_end_of_graphs(clock: StepClock) -> None:
    """Its closure is no part of the optimizer, and a fused one is one launch."""
    from habana_frameworks.torch import core
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    model = nn.Linear(8, 8).to("hpu")
    optimizer = FusedAdamW(model.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(torch.ones(4, 8, device="hpu")).sum()
        loss.backward()
        core.mark_step()
        return loss

    for _ in range(4):
        optimizer.step(closure)

    (step,) = clock.recording.steps
    assert {each.phase for each in step.operations if each.flops} == {"forward", "backward"}
    assert sum(each.is_launched for each in step.operations if each.phase == "optimizer") == 1
    assert len(step.graph_ends) == 3  # The optimizer marks its beginning and its end.


def test_a_layer_of_the_transformer_engine_is_a_few_kernels_in_float8(clock: StepClock) -> None:
    """A cast of each operand, the product, and two in the backward pass: what rounds numbers is none of a card's."""
    te = pytest.importorskip("habana_frameworks.torch.hpex.experimental.transformer_engine")
    model = te.Linear(32, 32, bias=False).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        with te.fp8_autocast(enabled=True, fp8_recipe=te.recipe.DelayedScaling(interval=100)):
            outputs = model(torch.ones(16, 32, device="hpu", requires_grad=True))
        outputs.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    (step,) = clock.recording.steps
    assert [each.dtype for each in step.operations if each.flops] == ["float8"] * 3
    kernels = [each for each in step.operations if each.is_launched and each.phase != "optimizer"]
    assert len(kernels) < 15 < len(step.operations)
