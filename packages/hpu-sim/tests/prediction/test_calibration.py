"""Ranges of a user's own card, from measured points."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.prediction import matrix_engine
from hpu_sim.prediction.calibration import CalibratedRange, calibrate, to_json
from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.hardware import CALIBRATION_VARIABLE, hardware, ranges
from hpu_sim.prediction.recording import Collective, Product

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20


def _one(data: Any, generation: str = "GAUDI2") -> CalibratedRange:
    (found,) = calibrate(data, generation)
    return found


def test_a_product_gives_the_efficiency_of_the_matrix_engine() -> None:
    """418.7 of 432 TFLOP/s were published of Gaudi 2."""
    shape = [14336, 2048, 15360]
    seconds = 2 * shape[0] * shape[1] * shape[2] / 418.7e12

    found = _one([{"id": "a", "kind": "matmul", "dtype": "bfloat16", "shape": shape, "seconds": seconds}])

    assert found.name == "matrix_efficiency"
    assert found.after == pytest.approx((0.969 / 1.05, 1.0), rel=2e-3)


def test_a_copy_gives_the_efficiency_of_the_memory() -> None:
    found = _one([{"id": "a", "kind": "bandwidth", "bytes": 1230 * 10**6, "seconds": 1.25e-3}])

    assert found.name == "memory_efficiency"
    assert found.after == pytest.approx((0.8 / 1.05, 0.8 * 1.05))


@pytest.mark.parametrize(
    ("kind", "name"), [("launch", "launch_seconds"), ("graph_launch", "graph_seconds"), ("host_read", "sync_seconds")]
)
def test_host_times_are_slow_end_first(kind: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = _one([{"id": "a", "kind": kind, "bytes": 4, "seconds": 40e-6}])

    assert (found.name, found.after[0] > found.after[1]) == (name, True)
    path = tmp_path / "calibration.json"
    path.write_text(to_json([found], "GAUDI2"))
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))
    assert getattr(hardware("GAUDI2"), name) == pytest.approx(40e-6)


@pytest.mark.parametrize(
    ("name", "recorded", "factor"),
    [("all-reduce", "allreduce", 1), ("all-gather", "allgather_base", 8), ("reduce-scatter", "reduce_scatter_base", 8)],
)
def test_a_collective_that_takes_as_predicted_has_the_efficiency_of_the_model(
    name: str, recorded: str, factor: int
) -> None:
    device = hardware("GAUDI2")
    size = 256 * _MIB
    call = Collective(recorded, "backward", size, factor * size, tuple(range(8)), is_async=True, after=0)
    point = {"id": f"{name}-256-mib", "kind": "collective", "bytes": size, "ranks": 8}

    found = _one([{**point, "seconds": collective_seconds(call, 8, device)}])

    slow, fast = ranges("GAUDI2")["in_box_efficiency"]
    assert found.after[0] == pytest.approx((slow * fast) ** 0.5 / 1.05)


def test_short_calls_and_other_boxes_tell_nothing_about_rates() -> None:
    points = [
        {"id": "all-reduce-1-mib", "kind": "collective", "bytes": _MIB, "ranks": 8, "seconds": 50e-6},
        {"id": "all-reduce-256-mib", "kind": "collective", "bytes": 256 * _MIB, "ranks": 16, "seconds": 5e-3},
        {"id": "a", "kind": "matmul", "dtype": "bfloat16", "shape": [64, 64, 64], "seconds": 20e-6},
    ]

    assert calibrate(points, "GAUDI2") == ()


def test_a_card_outside_of_the_range_of_all_cards_is_named() -> None:
    point = {"id": "a", "kind": "bandwidth", "bytes": 1230 * 10**6, "seconds": 5e-3}

    assert _one([point]).is_outside


def test_a_benchmark_of_products_is_no_faster_than_its_tiles_allow() -> None:
    """A product of 8 columns fills a sixteenth of Gaudi 2's engine: in that time, the clock is whole."""
    shape = [4096, 4096, 8]
    seconds = matrix_engine.seconds(Product(1, 4096, 8, 4096), "bfloat16", 2, "GAUDI2")
    points = [{"id": "a", "kind": "matmul", "dtype": "bfloat16", "shape": shape, "seconds": 1e-3}]

    assert _one(points).after[1] == pytest.approx(1.05 * seconds / 1e-3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": 1}, "hpu-doctor verify"),
        ([{"kind": "fft", "seconds": 1}], "`kind` of a point"),
        ([{"id": "a", "kind": "launch", "seconds": 0}], "must be positive"),
        ([{"id": "a", "kind": "launch", "seconds": 1, "simulated": True}], "simulated"),
    ],
)
def test_what_is_no_measurement_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(data, "GAUDI2")


def test_another_generation_keeps_its_ranges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"generation": "GAUDI3", "ranges": {"sync_seconds": [1.0, 1.0]}}))
    before = hardware("GAUDI2")
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))

    assert hardware("GAUDI2") == before
    assert hardware("GAUDI3").sync_seconds == pytest.approx(1.0)
