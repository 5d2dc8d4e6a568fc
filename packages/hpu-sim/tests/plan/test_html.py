"""The page of a plan."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from hpu_sim.plan import html
from hpu_sim.plan.compare import make_plan, strategy_plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.session import Options

from .programs import MODELS, train

if TYPE_CHECKING:
    from hpu_sim.plan.schema import Plan

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.fixture(scope="module")
def plan() -> Plan:
    recording = record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2))
    return make_plan(("train <1>.py",), [strategy_plan(recording, "GAUDI3")])


def test_the_page_is_self_contained(plan: Plan) -> None:
    page = html.render(plan)

    HTMLParser().feed(page)
    assert "predicted, not measured" in page
    assert "train &lt;1&gt;.py" in page
    assert not re.search(r"<script|https?://|src=|<link", page)


def test_the_areas_are_stacked(plan: Plan) -> None:
    """The upper edge of the last area is the sum, whose maximum touches the top."""
    areas = html.memory_areas(plan.strategies[0], plan.memory_categories)

    heights = [float(corner.partition(",")[2]) for corner in areas[-1].points.split()]
    assert min(heights) == 0
    assert {"parameters", "gradients", "optimizer state", "activations"} <= {area.name for area in areas}


def test_the_timeline_has_both_streams(plan: Plan) -> None:
    boxes = html.timeline(plan.strategies[0])

    assert {box.y for box in boxes} == {0, 30}
    assert max(box.x + box.width for box in boxes) <= 1001


def test_limits_below_one_percent_are_left_out(plan: Plan) -> None:
    time = dataclasses.replace(plan.strategies[0].time, bounds={"host": 0.99, "network": 0.004})
    page = html.render(dataclasses.replace(plan, strategies=(dataclasses.replace(plan.strategies[0], time=time),)))

    assert "host 99&nbsp;%</td>" in page
    assert "network 0" not in page
