"""Tests of the rules."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.report.findings import findings, limitations

from .factories import MACHINE, make_record, make_report, make_site

if TYPE_CHECKING:
    from hpu_sim.report.schema import Site

_UNSUPPORTED = "Unsupported operation"
_COMPLEX = "Complex dtype"
_HOST_SYNCS = "Host-device synchronization in every step"
_DYNAMIC_SHAPES = "Recipe cache misses from dynamic shapes"
_CHANGING_GRAPHS = "Recipe cache misses from changing graphs"
_CONVERSION = "Dtype conversion in HCCL reductions"
_FLOAT64 = "float64 computed as float32"


def _titles(site: Site) -> list[str]:
    return [finding.title for finding in findings(make_report(make_record(sites=(site,))))]


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({}, _HOST_SYNCS),
        ({"op": "aten::nonzero"}, _HOST_SYNCS),
        ({"kind": "compilation", "op": "aten::mul", "variant": "shapes"}, _DYNAMIC_SHAPES),
        ({"kind": "compilation", "op": "aten::mul", "variant": "operators"}, _CHANGING_GRAPHS),
        ({"kind": "compilation", "op": "", "variant": "end"}, _CHANGING_GRAPHS),
        ({"kind": "dtype", "op": "aten::mul", "variant": "float64"}, _FLOAT64),
        ({"kind": "dtype", "op": "aten::mul", "variant": "complex"}, _COMPLEX),
        ({"kind": "unsupported", "op": "allreduce"}, _UNSUPPORTED),
        ({"kind": "late_error", "op": "aten::index"}, "Error that a card raises later"),
        ({"kind": "graph_break", "op": "aten.index.Tensor"}, "Operators that torch.compile leaves to eager mode"),
        ({"kind": "trace_break", "op": "Failed to trace builtin operator"}, "Graph breaks of torch.compile"),
        ({"kind": "collective", "op": "allreduce", "variant": "int64"}, _CONVERSION),
        ({"kind": "collective", "op": "allreduce", "variant": "float16"}, _CONVERSION),
        ({"kind": "collective", "op": "reduce_scatter_base", "variant": "float64"}, _CONVERSION),
    ],
)
def test_site_leads_to_a_finding(changes: dict[str, Any], title: str) -> None:
    assert _titles(make_site(**changes)) == [title]


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 2, "count": 40},
        {"kind": "compilation", "op": "aten::mul", "variant": "shapes", "last_step": 3},
        {"kind": "compilation", "op": "aten::mul", "variant": "shapes", "count": 2},
        {"kind": "collective", "op": "allreduce", "variant": "bfloat16"},
        {"kind": "collective", "op": "broadcast", "variant": "int64"},
        {"kind": "collective", "op": "reduce_scatter_base", "variant": "int64"},
        {"kind": "h2d", "op": "copy", "variant": "pageable"},
        {"kind": "compiled_graph", "op": "forward"},
    ],
    ids=str,
)
def test_site_leads_to_no_finding(changes: dict[str, Any]) -> None:
    """Occasional synchronization, misses during warm-up and natively supported dtypes are not findings."""
    assert _titles(make_site(**changes)) == []


def test_errors_come_before_performance_and_numerics() -> None:
    sites = (make_site(kind="dtype", variant="float64"), make_site(), make_site(kind="unsupported"))
    categories = [finding.category for finding in findings(make_report(make_record(sites=sites)))]

    assert categories == ["error", "performance", "numerics"]


def test_high_memory_names_the_ranks() -> None:
    (finding,) = findings(make_report(make_record(), make_record(rank=1, totals={"peak_bytes": 90 << 30})))

    assert finding.title == "Peak memory is tight"
    assert finding.text.startswith("Rank 1. ")


def test_killed_ranks_are_a_finding() -> None:
    killed = [make_record(rank=rank, state="running") for rank in (5, 6, 5)]
    (finding,) = findings(make_report(make_record(), *killed))

    assert (finding.category, finding.title) == ("error", "Ranks 5, 6 were killed")


def test_complete_report_in_lazy_mode_has_no_limitations() -> None:
    assert limitations(make_report(make_record())) == ()


def test_missing_ranks_are_a_limitation() -> None:
    (limitation,) = limitations(make_report(make_record(world_size=4), missing_ranks=(1, 2, 3)))

    assert limitation.startswith("Ranks 1, 2, 3 left no record: killed")


def test_eager_mode_is_a_limitation() -> None:
    record = make_record(machine=dataclasses.replace(MACHINE, lazy=False))
    (limitation,) = limitations(make_report(record))

    assert "PT_HPU_LAZY_MODE=1" in limitation


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recording_error": "KeyError: 3"}, "Rank 0 stopped recording: KeyError: 3."),
        ({"dropped_events": 7}, "Rank 0 had 7 events beyond the limit of recorded lines."),
    ],
)
def test_incomplete_recording_is_a_limitation(changes: dict[str, Any], text: str) -> None:
    assert limitations(make_report(make_record(**changes))) == (text,)
