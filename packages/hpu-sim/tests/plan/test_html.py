"""The page of a plan."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser

import pytest

from hpu_sim.common.document import Chart
from hpu_sim.plan import view
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options
from hpu_sim.plan.schema import Plan

from .programs import MODELS, planned, train

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.fixture(scope="module")
def plan() -> Plan:
    recording = record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2))
    return Plan(command=("train <1>.py",), strategies=(planned(recording, "GAUDI3"),))


def _chart(plan: Plan) -> Chart:
    (chart,) = (each for each in view.document(plan).parts if isinstance(each, Chart))
    return chart


def test_the_page_is_self_contained(plan: Plan) -> None:
    page = view.document(plan).html()

    HTMLParser().feed(page)
    assert "predicted, not measured" in page
    assert "train &lt;1&gt;.py" in page
    assert not re.search(r"<script|https?://|src=|<link", page)


def test_the_areas_are_stacked(plan: Plan) -> None:
    """The upper edge of the last area is the sum, whose maximum is at most the top of the axis."""
    chart = _chart(plan)

    areas = [each for each in chart.shapes if each.points]
    heights = [float(corner.partition(",")[2]) for corner in areas[-1].points.split()]
    assert 0 <= min(heights) < view.HEIGHT / 2
    assert {"parameters", "gradients", "optimizer state", "activations"} <= {area.label for area in areas}


def test_the_memory_is_that_from_the_setup_to_the_last_step(plan: Plan) -> None:
    chart = _chart(plan)

    assert [label for _, label in chart.columns] == ["setup", "step 1", "step 2", "step 3"]
    assert chart.shapes[-1].label.startswith("step 3, optimizer: ")


def test_the_axes_begin_at_zero_and_have_round_numbers(plan: Plan) -> None:
    chart = _chart(plan)

    assert [*chart.rows[0]] == [view.HEIGHT, "0 B"]
    assert [label for _, label in chart.rows[1:]] == ["100 KiB", "200 KiB", "300 KiB"]


def test_limits_below_five_percent_are_left_out(plan: Plan) -> None:
    step = dataclasses.replace(plan.strategies[0].step, bounds={"host": 0.99, "network": 0.004})
    page = view.document(
        dataclasses.replace(plan, strategies=(dataclasses.replace(plan.strategies[0], step=step),))
    ).html()

    assert "limited by host (99%);" in page
    assert "network (" not in page
