"""Time and memory by operator."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_profiler.trace.operators import totals
from hpu_profiler.trace.reading import read

from ..traces import Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_calls_of_an_operator_are_added_up(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """With the work that each launched itself."""
    events = [
        writer.operator("aten::mm", 0, 4, 1),
        writer.operator("aten::mm", 10, 6, 2),
        writer.work("gemm", 1, 2, number=1),
        writer.work("gemm", 11, 3, number=2),
    ]

    (row,) = totals([read(make_trace(*events))])

    assert (row.name, row.calls, row.cpu, row.own_cpu, row.hpu, row.works) == ("aten::mm", 2, 10, 10, 5, 2)


def test_all_work_is_counted_once(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Whether it is linked or not, and however operators nest: rows and intervals have the same sum."""
    events = [
        writer.operator("aten::matmul", 0, 9, 1),
        writer.operator("aten::mm", 1, 7, 2),
        writer.work("gemm", 2, 2, number=2),
        writer.work("cast", 5, 1, number=1),
        writer.work("fused", 20, 4),
    ]
    trace = read(make_trace(*events))

    rows = {row.name: (row.calls, row.hpu) for row in totals([trace])}

    assert rows == {"aten::matmul": (1, 1), "aten::mm": (1, 2), "fused": (1, 4)}
    assert sum(hpu for _, hpu in rows.values()) == sum(work.duration for work in trace.work)


@pytest.mark.parametrize(("by_shapes", "rows"), [(False, 1), (True, 2)])
def test_shapes_can_be_told_apart(by_shapes: bool, rows: int, writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Where they were recorded."""
    events = [writer.operator("aten::mm", 10 * i, 4, i, shapes=[[i, 2]]) for i in (1, 2)]

    assert len(totals([read(make_trace(*events))], by_shapes=by_shapes)) == rows
