"""Tests of the JSON encoding of records and reports."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_sim.common.encoding import from_dict
from hpu_sim.report.schema import RankRecord, Report

from .factories import make_frame, make_record, make_report, make_site


def test_report_survives_json_round_trip() -> None:
    """Every optional part is once present and once absent."""
    full = make_record(
        sites=(make_site(), make_site(frame_index=None, stack=(), backward="Addmm", examples=["float32[3]"])),
    )
    report = make_report(full, make_record(rank=1), missing_ranks=(2, 3), exit_code=-9)

    assert from_dict(Report, json.loads(json.dumps(dataclasses.asdict(report)))) == report


def test_missing_field_raises() -> None:
    data = dataclasses.asdict(make_report())
    del data["ranks"]

    with pytest.raises(ValueError, match=r"not a Report of schema version 6: KeyError\('ranks'\)"):
        from_dict(Report, data)


@pytest.mark.parametrize("data", [None, [], "report", {"schema_version": 2}], ids=str)
def test_unrelated_json_raises(data: object) -> None:
    with pytest.raises(ValueError, match="not a RankRecord of schema version 6"):
        from_dict(RankRecord, data)


def test_frame_of_site_is_selected_by_index() -> None:
    inner, outer = make_frame(line=1), make_frame(line=2)

    assert make_site(stack=(inner, outer), frame_index=1).frame == outer
    assert make_site(stack=(inner, outer), frame_index=None).frame is None


@pytest.mark.parametrize(
    "change",
    [
        {"rank": "0"},
        {"state": "gone"},
        {"totals": {"graphs": "many"}},
        {"sites": "abc"},
        {"machine": {"devices": None}},
    ],
    ids=str,
)
def test_wrong_type_raises(change: dict[str, object]) -> None:
    data = dataclasses.asdict(make_record())

    with pytest.raises(ValueError, match="not a RankRecord of schema version 6"):
        from_dict(RankRecord, {**data, **change})


_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a1é", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("a1é", max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(change=st.dictionaries(st.sampled_from([field.name for field in dataclasses.fields(RankRecord)]), _VALUE))
def test_any_json_is_a_record_or_an_error(change: dict[str, object]) -> None:
    """What is accepted can be sorted, written and read again."""
    try:
        record = from_dict(RankRecord, {**dataclasses.asdict(make_record()), **change})
    except ValueError as error:
        assert "not a RankRecord" in str(error)  # noqa: PT017 - either outcome is right.
    else:
        assert sorted([(record.rank, record.pid), (0, 0)])
        assert from_dict(RankRecord, dataclasses.asdict(record)).state in {"running", "exited"}
