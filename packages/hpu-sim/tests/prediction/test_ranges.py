"""Ranges of predictions and of their ratios."""

from __future__ import annotations

import json
import math
import random
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.prediction.hardware import (
    CALIBRATION_VARIABLE,
    give_figures,
    hardware,
    ranges,
    uncertain,
    unexplained,
    usable_memory,
)
from hpu_sim.prediction.ranges import UNEXPLAINED, Z_SCORE, Clock, Range, interval, ratio
from hpu_sim.prediction.recording import Operation, Product, Recording, StepRecording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GIB = 1 << 30


def _recording(copies: int, *, product: bool = False) -> Recording:
    flops, size = (2 * 4096**3, 1 << 20) if product else (0, _GIB)
    operation = Operation(
        "aten.op",
        "forward",
        "",
        "bfloat16",
        flops,
        (Product(1, 4096, 4096, 4096),) if product else (),
        ((0, size),),
        ((1, size),),
        0,
    )
    return Recording(("",), 0, 8, 8, lazy=True, steps=[StepRecording([operation] * copies)])


def _range(recording: Recording, generation: str = "GAUDI2") -> Range:
    return Clock(recording, generation).range()


def test_a_range_has_the_figures_that_limit_the_step_and_what_they_do_not_explain() -> None:
    """A step of products depends on the matrix engine alone."""
    found = _range(_recording(100, product=True))

    assert set(list(found.shares)[:2]) == {"matrix_efficiency", UNEXPLAINED}
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.low < found.middle < found.high
    assert math.log(found.high / found.middle) > Z_SCORE * unexplained() / math.sqrt(3)


def test_a_range_holds_eight_cases_in_ten() -> None:
    """Three figures draw at random; one only slows the step."""
    draw = random.Random(0)  # noqa: S311 - draws for a statistic.
    ends = {"first": (math.exp(0.3), math.exp(-0.2)), "second": (math.exp(0.4), 1.0), "third": (0.8, 1.2)}
    found = interval(1.0, ends, 0.1)

    inside = 0
    for _ in range(2000):
        log = draw.uniform(-0.1, 0.1)
        for one, other in ends.values():
            log += draw.random() * math.log(draw.choice((one, other)))
        inside += found.low <= math.exp(log) <= found.high

    assert 0.77 < inside / 2000 < 0.83


def test_what_may_only_slow_a_step_moves_its_middle() -> None:
    """The host is faster than the card with all figures in the middle, and slower at the slow end."""
    recording = _recording(100, product=True)
    small = Operation("aten.op", "forward", "", "bfloat16", 0, (), ((2, 64),), ((3, 64),), 0)
    recording.steady.operations += [small] * 1000
    recording.steady.graph_ends.append(1100)

    found = _range(recording)

    assert found.shares["trace_seconds"] > 0.1
    assert Clock(recording, "GAUDI2").seconds() < found.middle
    assert found.middle**2 == pytest.approx(found.low * found.high)


def test_what_is_uncertain_about_both_cancels() -> None:
    """Twice the same work takes twice as long, within what the ranges do not explain."""
    found = ratio(Clock(_recording(200, product=True), "GAUDI2"), Clock(_recording(100, product=True), "GAUDI2"))

    assert found.middle == pytest.approx(2.0, rel=0.01)
    assert math.log(found.high / found.low) == pytest.approx(2 * Z_SCORE * unexplained() / math.sqrt(3), rel=0.01)


def test_what_each_generation_has_for_itself_does_not_cancel() -> None:
    of, to = _recording(100, product=True), _recording(100, product=True)

    across = ratio(Clock(of, "GAUDI3"), Clock(to, "GAUDI2"))
    within = ratio(Clock(of, "GAUDI2"), Clock(to, "GAUDI2"))

    assert across.high / across.low > within.high / within.low
    assert across.low < across.middle < across.high < 1


def test_a_calibrated_card_has_a_narrower_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = _range(_recording(100, product=True))
    path = tmp_path / "calibration.json"
    known = {"matrix_efficiency": [0.85, 0.86]}
    path.write_text(json.dumps({"schema_version": 1, "generation": "GAUDI2", "ranges": known}))
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))

    after = _range(_recording(100, product=True))

    assert after.high / after.low < before.high / before.low


def test_a_user_sets_figures_and_their_ranges() -> None:
    before = hardware("GAUDI2")
    try:
        give_figures(["launch_seconds=1e-5", "box=4", "memory_bytes=68719476736", "sync_seconds=4e-5:2e-5"])

        card = hardware("GAUDI2")
        assert (card.launch_seconds, card.box) == (1e-5, 4)
        assert uncertain("GAUDI2")["sync_seconds"] == (4e-5, 2e-5)
        assert usable_memory("GAUDI2") < 64 << 30
        assert "launch_seconds" not in uncertain("GAUDI2")
    finally:
        give_figures([])
    assert hardware("GAUDI2") == before


@pytest.mark.parametrize(
    ("setting", "message"), [("speed=1", "must name one of"), ("launch_seconds=fast", "must be a number")]
)
def test_a_setting_that_is_no_figure_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        give_figures([setting])


def test_a_figure_that_a_step_does_not_use_is_not_moved() -> None:
    """A step without collectives and reads, in lazy mode."""
    found = _range(_recording(1))

    assert not {"collective_seconds", "sync_seconds", "launch_seconds", "loader_factor"} & set(found.shares)


def test_every_figure_of_a_step_moves_to_the_ends_of_its_range() -> None:
    known = ranges("GAUDI2")

    assert uncertain("GAUDI2") == known


def _entries(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures of a file, which are the objects with a source."""
    for name, each in data.items():
        if isinstance(each, dict):
            yield from [(name, each)] if "source" in each else _entries(each)
        elif isinstance(each, list) and name == "memory_reserves":
            yield from ((entry["name"], entry) for entry in each)


def test_every_figure_names_its_source_and_its_kind() -> None:
    data = json.loads(resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8"))

    figures = list(_entries({name: data[name] for name in ("common", "generations")}))

    assert len(figures) > 50
    for name, each in figures:
        assert each["kind"] in {"rule", "measurement", "statement", "prior"}, name
        assert set(each["source"].split(", ")) <= set(data["sources"]), name
        assert "range" in each or "value" in each, name
        if {"range", "value"} <= set(each):
            assert min(each["range"]) <= each["value"] <= max(each["range"]), name
