"""The page of a plan."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser

import pytest

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


def test_the_page_is_self_contained(plan: Plan) -> None:
    page = view.document(plan).html()

    HTMLParser().feed(page)
    assert "predicted, not measured" in page
    assert "train &lt;1&gt;.py" in page
    assert not re.search(r"<script|https?://|src=|<link", page)


def test_limits_below_five_percent_are_left_out(plan: Plan) -> None:
    step = dataclasses.replace(plan.strategies[0].step, bounds={"host": 0.99, "network": 0.004})
    page = view.document(
        dataclasses.replace(plan, strategies=(dataclasses.replace(plan.strategies[0], step=step),))
    ).html()

    assert "limited by host (99%);" in page
    assert "network (" not in page
