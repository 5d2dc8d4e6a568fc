"""Ranges of predictions and of their ratios."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from hpu_sim.prediction.hardware import CALIBRATION_VARIABLE, highest_efficiency, moves, residual
from hpu_sim.prediction.ranges import UNEXPLAINED, Range, ratio, step_range
from hpu_sim.prediction.recording import Operation, Recording, StepRecording

if TYPE_CHECKING:
    from pathlib import Path

_GIB = 1 << 30


def _recording(copies: int, *, product: bool = False) -> Recording:
    flops = (1 << 43) if product else 0
    operation = Operation(
        "aten.op",
        "forward",
        "",
        "bfloat16",
        flops,
        (1, 4096, 4096, 4096) if product else None,
        ((0, _GIB),),
        ((1, _GIB),),
        0,
    )
    return Recording(("",), 0, 8, 8, lazy=True, steps=[StepRecording([operation] * copies)])


def _range(recording: Recording, generation: str = "GAUDI2") -> Range:
    return step_range(recording.steady, generation, 8, "lazy")


def test_a_range_has_the_figures_that_limit_the_step_and_what_they_do_not_explain() -> None:
    """A step of products depends on the matrix engine alone."""
    found = _range(_recording(100, product=True))

    assert set(list(found.shares)[:2]) == {"matrix_efficiency GAUDI2", UNEXPLAINED}
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.low < found.middle < found.high
    assert math.log(found.high / found.middle) > residual("GAUDI2")


def test_what_is_uncertain_about_both_cancels() -> None:
    """Twice the same work takes twice as long, within what the ranges do not explain."""
    found = ratio((_recording(200, product=True), "GAUDI2"), (_recording(100, product=True), "GAUDI2"))

    assert found.middle == pytest.approx(2.0, rel=0.01)
    assert math.log(found.high / found.low) == pytest.approx(2 * residual("ratio"), rel=0.01)


def test_what_each_generation_has_for_itself_does_not_cancel() -> None:
    of, to = _recording(100, product=True), _recording(100, product=True)

    across = ratio((of, "GAUDI3"), (to, "GAUDI2"))
    within = ratio((of, "GAUDI2"), (to, "GAUDI2"))

    assert across.high / across.low > 1.02 * within.high / within.low
    assert across.low < across.middle < across.high < 1


def test_a_calibrated_card_has_a_narrower_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = _range(_recording(100, product=True))
    path = tmp_path / "calibration.json"
    ranges = {"matrix_efficiency": [0.85, 0.86]}
    path.write_text(json.dumps({"schema_version": 1, "generation": "GAUDI2", "ranges": ranges}))
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))

    after = _range(_recording(100, product=True))

    assert after.high / after.low < before.high / before.low


def test_a_part_of_a_step_has_a_range_as_wide() -> None:
    found = _range(_recording(2))

    assert found.of_part(found.middle / 2) == pytest.approx((found.low / 2, found.high / 2))


def test_an_error_moves_what_the_fit_could_not_tell_apart() -> None:
    """Each moves its own figure most, within the prior range, and figures of other generations by their own names."""
    found = moves("GAUDI2")

    slow, fast = found["matrix_efficiency GAUDI2"]
    assert slow["matrix_efficiency"] < fast["matrix_efficiency"] <= highest_efficiency("GAUDI2")
    slow, fast = found["vector_efficiency"]
    assert slow["vector_efficiency"] < fast["vector_efficiency"]
    assert slow["matrix_efficiency"] != fast["matrix_efficiency"]
    assert "matrix_efficiency" not in found["matrix_efficiency GAUDI3"][0]
