"""Recorded steps as JSON, by which the model of time is judged."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hpu_sim.prediction.recording import Collective, Operation, Product, StepRecording, host_read
from hpu_sim.prediction.time_model import Mode

from .predicting import predict

if TYPE_CHECKING:
    import pytest

_PUBLISHED = Path(__file__).parents[2] / "bench" / "published"


def test_a_step_has_the_same_time_after_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(_PUBLISHED)
    encoding = importlib.import_module("encoding")
    operations = [
        Operation(
            "aten.mm",
            "forward",
            "net",
            "bfloat16",
            1 << 40,
            (Product(1, 64, 64, 64),),
            ((7, 64), (9, 64)),
            ((11, 64),),
            3,
        ),
        Operation("aten.relu", "backward", "net", "float32", 0, (), ((11, 1 << 20),), ((13, 1 << 20),), 4, (0,)),
        host_read("optimizer"),
        Operation("aten.add", "optimizer", "", "float32", 0, (), (), ((13, 64),), 5, is_launched=False),
    ]
    call = Collective("allreduce", "backward", 1 << 30, 1 << 30, tuple(range(8)), is_async=True, after=1)
    step = StepRecording(operations, [call], graph_ends=[2])

    found = encoding.from_json(json.loads(json.dumps(encoding.to_json(step))))

    for mode in get_args(Mode):
        one, other = (predict(each, "GAUDI2", 8, mode) for each in (step, found))
        assert one.seconds == other.seconds
    assert (found.collectives, found.graph_ends) == ([call], [2])
