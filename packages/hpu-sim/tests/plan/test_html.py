"""The page of a plan."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser

import pytest

from hpu_sim.plan import html
from hpu_sim.plan.compare import strategy_plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.schema import Plan
from hpu_sim.plan.session import Options

from .programs import MODELS, train

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.fixture(scope="module")
def plan() -> Plan:
    recording = record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2))
    return Plan(command=("train <1>.py",), strategies=(strategy_plan(recording, "GAUDI3"),))


def test_the_page_is_self_contained(plan: Plan) -> None:
    page = html.render(plan)

    HTMLParser().feed(page)
    assert "predicted, not measured" in page
    assert "train &lt;1&gt;.py" in page
    assert not re.search(r"<script|https?://|src=|<link", page)


def test_the_areas_are_stacked(plan: Plan) -> None:
    """The upper edge of the last area is the sum, whose maximum is at most the top of the axis."""
    chart = html.memory_chart(plan.strategies[0], plan.memory_categories)

    heights = [float(corner.partition(",")[2]) for corner in chart.areas[-1].points.split()]
    assert 0 <= min(heights) < html.HEIGHT / 2
    assert {"parameters", "gradients", "optimizer state", "activations"} <= {area.name for area in chart.areas}


def test_the_memory_is_that_from_the_setup_to_the_last_step(plan: Plan) -> None:
    chart = html.memory_chart(plan.strategies[0], plan.memory_categories)

    assert [step.label for step in chart.steps] == ["setup", "step 1", "step 2", "step 3"]
    assert chart.strips[-1].label.startswith("step 3, optimizer: ")


def test_the_axes_begin_at_zero_and_have_round_numbers(plan: Plan) -> None:
    chart = html.memory_chart(plan.strategies[0], plan.memory_categories)

    assert chart.ticks[0].label == "0 B"
    assert chart.ticks[0].position == html.HEIGHT
    assert [tick.label for tick in chart.ticks[1:]] == ["100 KiB", "200 KiB", "300 KiB"]


def test_the_timeline_has_a_lane_per_cause(plan: Plan) -> None:
    chart = html.timeline(plan.strategies[0])

    assert {lane.label for lane in chart.lanes} == {span.bound for span in plan.strategies[0].spans}
    assert max(box.x + box.width for box in chart.boxes) <= html.WIDTH + 1
    assert chart.ticks[0].label == "0"


def test_limits_below_one_percent_are_left_out(plan: Plan) -> None:
    time = dataclasses.replace(plan.strategies[0].time, bounds={"host": 0.99, "network": 0.004})
    page = html.render(dataclasses.replace(plan, strategies=(dataclasses.replace(plan.strategies[0], time=time),)))

    assert "host 99&nbsp;%</td>" in page
    assert "network 0" not in page
