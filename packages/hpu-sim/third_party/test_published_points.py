"""The recordings by which the planner's model of time is judged are those of the programs beside them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[1] / "bench/published"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_FOLDER))
    for name in ("programs", "record"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.hpu(devices=8, lazy=True)
def test_a_small_point_is_recorded_as_before() -> None:
    import record

    (point,) = (each for each in record.points() if each["id"] == "H020")

    before = json.loads(gzip.decompress(record.path(point).read_bytes()))

    features = json.loads(json.dumps(record.features(point)))
    assert features == {name: before[name] for name in features}
