"""Records on their way through JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hpu_sim.report.model import (
    CollectiveUse,
    Compilation,
    Ending,
    Frame,
    ModelState,
    RankRecord,
    Report,
    Site,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_report_survives_json(
    make_frame: Callable[..., Frame],
    make_site: Callable[..., Site],
    make_record: Callable[..., RankRecord],
    make_report: Callable[..., Report],
) -> None:
    """Every part of it, whatever is there and whatever is not."""
    full = make_record(
        sites=(make_site(), make_site(place=None, stack=(), backward="Addmm", examples=("float32[3]",))),
        ending=Ending("ValueError", "no", make_frame()),
        model=ModelState(1, 2, 3),
        compilations=(Compilation(3, True, "shapes", "aten::addmm", "float32[3]", "float32[4]", None),),
        collectives=(CollectiveUse("allreduce", 3, 300, ((128, 3),)),),
    )
    report = make_report(full, make_record(rank=1), missing=(2, 3), exit_code=-9)

    assert decode(Report, json.loads(json.dumps(encode(report)))) == report


def test_other_data_are_refused(make_report: Callable[..., Report]) -> None:
    """With what is missing."""
    data = encode(make_report())
    del data["ranks"]

    with pytest.raises(ValueError, match=r"this is no Report of format 1: KeyError\('ranks'\)"):
        decode(Report, data)


@pytest.mark.parametrize("data", [None, [], "report", {"format": 1}], ids=str)
def test_what_is_no_record_at_all_is_refused(data: object) -> None:
    """Whatever JSON can hold."""
    with pytest.raises(ValueError, match="this is no RankRecord of format 1"):
        decode(RankRecord, data)


def test_a_site_knows_its_line(make_site: Callable[..., Site], make_frame: Callable[..., Frame]) -> None:
    """By its place in the stack; without one it has none."""
    inner, outer = make_frame(line=1), make_frame(line=2)

    assert make_site(stack=(inner, outer), place=1).frame == outer
    assert make_site(stack=(inner, outer), place=None).frame is None
