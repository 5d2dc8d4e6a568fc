"""Tests of the JSON encoding of records and reports."""

from __future__ import annotations

import json

import pytest

from hpu_sim.report.schema import (
    CollectiveStats,
    Compilation,
    OptimizerMemory,
    RankRecord,
    Report,
    UncaughtError,
    from_dict,
    to_dict,
)

from .factories import make_frame, make_record, make_report, make_site


def test_report_survives_json_round_trip() -> None:
    """Every optional part is once present and once absent."""
    full = make_record(
        sites=(make_site(), make_site(frame_index=None, stack=(), backward="Addmm", examples=("float32[3]",))),
        uncaught_error=UncaughtError("ValueError", "no", make_frame()),
        optimizer_memory=OptimizerMemory(1, 2, 3),
        compilations=(Compilation(3, True, "shapes", "aten::addmm", "float32[3]", "float32[4]", None),),
        collectives=(CollectiveStats("allreduce", 3, 300, ((128, 3),)),),
    )
    report = make_report(full, make_record(rank=1), missing_ranks=(2, 3), exit_code=-9)

    assert from_dict(Report, json.loads(json.dumps(to_dict(report)))) == report


def test_missing_field_raises() -> None:
    data = to_dict(make_report())
    del data["ranks"]

    with pytest.raises(ValueError, match=r"not a Report of schema version 1: KeyError\('ranks'\)"):
        from_dict(Report, data)


@pytest.mark.parametrize("data", [None, [], "report", {"schema_version": 1}], ids=str)
def test_unrelated_json_raises(data: object) -> None:
    with pytest.raises(ValueError, match="not a RankRecord of schema version 1"):
        from_dict(RankRecord, data)


def test_frame_of_site_is_selected_by_index() -> None:
    inner, outer = make_frame(line=1), make_frame(line=2)

    assert make_site(stack=(inner, outer), frame_index=1).frame == outer
    assert make_site(stack=(inner, outer), frame_index=None).frame is None
