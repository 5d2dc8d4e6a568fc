"""Totals by operator."""

import pytest

from hpu_profiler.analysis.operators import operator_stats

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_each_device_event_counts_once(builder: TraceBuilder) -> None:
    """The device time of all rows is that of all device events, linked or not."""
    trace = builder.trace(
        builder.operator("aten::matmul", 0, 9, 1),
        builder.operator("aten::mm", 1, 7, 2),
        builder.device_event("gemm", 2, 2, external_id=2),
        builder.device_event("cast", 5, 1, external_id=1),
        builder.device_event("fused", 20, 4),
    )

    rows = {row.name: (row.calls, row.device_time) for row in operator_stats(trace)}

    assert rows == {"aten::matmul": (1, 1), "aten::mm": (1, 2), "fused": (1, 4)}
    assert sum(time for _, time in rows.values()) == sum(event.duration for event in trace.device_events)


def test_a_kernel_with_the_name_of_an_operator_is_no_further_call(builder: TraceBuilder) -> None:
    """The simulated bridge names kernels so, without a link."""
    trace = builder.trace(builder.operator("aten::mm", 0, 9, 1), builder.device_event("aten::mm", 2, 5))

    (row,) = operator_stats(trace)

    assert (row.calls, row.device_events, row.device_time) == (1, 1, 5)


@pytest.mark.parametrize(("group_by_shapes", "rows"), [(False, 1), (True, 2)])
def test_calls_can_be_grouped_by_shapes(group_by_shapes: bool, rows: int, builder: TraceBuilder) -> None:
    trace = builder.trace(*(builder.operator("aten::mm", 10 * i, 4, i, shapes=[[i, 2]]) for i in (1, 2)))

    assert len(operator_stats(trace, group_by_shapes=group_by_shapes)) == rows
