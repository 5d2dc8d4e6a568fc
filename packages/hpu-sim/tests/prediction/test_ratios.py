"""Ratios of predictions with correlated errors."""

from __future__ import annotations

import pytest

from hpu_sim.prediction.hardware import residual
from hpu_sim.prediction.ratios import ratio
from hpu_sim.prediction.recording import Operation, Recording, StepRecording
from hpu_sim.prediction.time_model import predict_recording

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


def test_what_is_uncertain_about_both_cancels() -> None:
    """Twice the same work takes twice as long, within what the ranges do not explain."""
    found = ratio((_recording(200, product=True), "GAUDI2"), (_recording(100, product=True), "GAUDI2"))

    assert found.middle == pytest.approx(2.0, rel=0.01)
    unexplained = 2 * residual("ratio")
    single = (predict_recording(_recording(100, product=True), "GAUDI2", end).seconds for end in ("slow", "fast"))
    slow, fast = single
    assert found.high / found.low == pytest.approx(2.718281828**unexplained, rel=0.01)
    assert slow / fast > 1.2


def test_what_each_generation_has_for_itself_does_not_cancel() -> None:
    of, to = _recording(100, product=True), _recording(100, product=True)

    across = ratio((of, "GAUDI3"), (to, "GAUDI2"))
    within = ratio((of, "GAUDI2"), (to, "GAUDI2"))

    assert across.high / across.low > 1.02 * within.high / within.low
    assert across.low < across.middle < across.high < 1


def test_a_ratio_is_shown_as_its_range() -> None:
    found = ratio((_recording(2), "GAUDI2"), (_recording(1), "GAUDI2"))

    assert str(found) == f"{found.low:.3g} to {found.high:.3g}"
