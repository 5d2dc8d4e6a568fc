"""A plan agrees with a run of the same program on the simulated device."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import hpu_sim
from hpu_sim import plan
from hpu_sim.device import runtime
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options
from hpu_sim.prediction.chrome_trace import trace_of
from hpu_sim.prediction.time_model import Clock
from hpu_testing import RankPool

from .programs import BATCH, MODELS, attention, run_on_device, train

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_sim.report.step_clock import StepClock
    from hpu_testing.fork_server import ForkServer

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("model", MODELS)
def test_peak_memory_is_that_of_the_device(model: str) -> None:
    recording = record_call(functools.partial(train, MODELS[model]), Options())
    planned = memory_plan(recording).peak_bytes

    assert planned == run_on_device(MODELS[model])


def test_flops_of_an_mlp_are_those_of_the_formula() -> None:
    recording = record_call(functools.partial(train, MODELS["mlp"]), Options())

    # Forward and the weights' gradients of both layers, and the gradient of the second layer's input.
    assert recording.steady.flops == 2 * BATCH * (2 * (64 * 128 + 128 * 10) + 128 * 10)


def test_large_weights_are_not_allocated() -> None:
    """A layer of 16 TiB is planned on any machine."""

    def program() -> None:
        layer = nn.Linear(1 << 21, 1 << 21, bias=False)
        with plan.step():
            layer.to("hpu")(torch.rand(1, 1 << 21).to("hpu")).sum().backward()

    recording = record_call(program, Options())

    assert memory_plan(recording).at_peak["parameters"] == 1 << 44


def _traced(trace: dict[str, Any]) -> float:
    """Return the seconds of a trace's step."""
    return next(float(each["dur"]) / 1e6 for each in trace["traceEvents"] if each["name"] == "ProfilerStep#1")


@pytest.mark.parametrize("model", ["mlp", "attention"])
def test_a_plan_its_trace_and_a_run_have_one_time(model: str, request: pytest.FixtureRequest) -> None:
    """The recorded step has the operators of the planned one, also where a card decomposes attention."""
    make, generation = {**MODELS, "attention": attention}[model], runtime.active_config().generation
    recording = record_call(functools.partial(train, make), Options(devices=runtime.active_config().devices))
    clock: StepClock = request.getfixturevalue("clock")
    train(make, steps=4, decomposes=False)

    assert clock.predicted is not None
    planned = Clock(recording, generation)
    assert _traced(trace_of(planned)) == pytest.approx(planned.timeline.seconds, rel=1e-3)
    assert clock.predicted.seconds == pytest.approx(planned.timeline.seconds, rel=1e-3)
    assert clock.predicted.flops == recording.steady.flops


def _train_rank(wrap: str) -> list[dict[str, int]]:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("hccl")
    hpu_sim.reset_stats()
    return train(MODELS["mlp"], wrap=wrap)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_collectives_and_memory_are_those_of_two_ranks(
    wrap: str, tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step has the same number of collectives with the same bytes, and the peak is the same."""
    monkeypatch.setattr("hpu_testing.rank_pool.shared_server", lambda: fork_server)
    with RankPool(2, tmp_path) as ranks:
        measured = ranks.call(_train_rank, wrap)[0]
    recording = record_call(functools.partial(train, MODELS["mlp"], wrap=wrap), Options(devices=2))

    per_step = [
        (after["collectives"] - before["collectives"], after["collective_bytes"] - before["collective_bytes"])
        for before, after in itertools.pairwise(measured)
    ]
    planned = [(len(step.collectives), sum(each.bytes for each in step.collectives)) for step in recording.steps]
    assert planned[1:] == per_step[: len(planned) - 1]
    assert memory_plan(recording).peak_bytes == measured[-1]["peak_bytes"]


@pytest.mark.usefixtures("eager")
def test_a_gather_into_a_list_has_the_bytes_of_all_ranks() -> None:
    def program() -> None:
        part, whole = torch.ones(8, device="hpu"), torch.ones(16, device="hpu")
        with plan.step():
            torch.distributed.all_gather(list(whole.chunk(2)), part)

    (gather,) = record_call(program, Options(devices=2)).steady.collectives

    assert (gather.bytes, gather.total_bytes) == (32, 64)
