"""Plans from recordings, and their text and JSON."""

from __future__ import annotations

import functools
import json

import pytest

from hpu_sim.plan import text
from hpu_sim.plan.compare import make_plan, strategy_plan
from hpu_sim.plan.recording import MemorySample, Recording
from hpu_sim.plan.schema import Plan
from hpu_sim.plan.session import Options, record_call

from .programs import MODELS, train

pytestmark = pytest.mark.needs_torch("2.8", "the tools of the planner")


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2, nodes=8), ("train.py",))


@pytest.fixture(scope="module")
def plan(recording: Recording) -> Plan:
    return make_plan(recording.command, [strategy_plan(recording, each) for each in ("GAUDI2", "GAUDI3")])


def test_each_generation_has_a_row(plan: Plan) -> None:
    assert [each.generation for each in plan.strategies] == ["GAUDI2", "GAUDI3"]
    assert plan.fits


def test_gradients_are_reduced_over_all_ranks(plan: Plan) -> None:
    (group,) = plan.strategies[0].collectives

    assert (group.name, group.count, group.ranks, group.boxes) == ("allreduce", 1, 16, 8)
    assert group.bytes == 4 * (64 * 128 + 128 + 128 * 10 + 10)


def test_the_step_is_a_range(plan: Plan) -> None:
    time = plan.strategies[0].time

    assert 0 < time.fast_seconds < time.slow_seconds


def test_the_json_is_read_back(plan: Plan) -> None:
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_every_output_says_that_nothing_was_measured(plan: Plan) -> None:
    assert "predicted, not measured" in text.render(plan)
    assert plan.to_dict()["disclaimer"] == "predicted, not measured"


def test_a_plan_that_does_not_fit_says_so(recording: Recording) -> None:
    sample = MemorySample(0, "forward", (200 << 30, 0, 0, 0, 0, 0, 0))
    setup = recording.setup.samples
    recording.setup.samples = [*setup, sample]
    try:
        plan = make_plan((), [strategy_plan(recording, "GAUDI3")])
    finally:
        recording.setup.samples = setup

    assert not plan.fits
    assert "200 GiB of 126.6 GiB  NO" in text.render(plan)
