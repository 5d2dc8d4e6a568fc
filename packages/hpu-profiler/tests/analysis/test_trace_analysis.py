"""Analysis of one trace."""

import pytest

from hpu_profiler.analysis.device_events import copy_direction
from hpu_profiler.analysis.operators import operator_shares, operator_stats
from hpu_profiler.analysis.recompilation import CompilationStats
from hpu_profiler.analysis.trace_analysis import analyze_trace
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_idle_time_is_attributed_to_causes(slow_rank: Trace) -> None:
    """A compilation during data loading counts as compilation."""
    analysis = analyze_trace(slow_rank, "rank 1")

    assert {cause: time for cause, time in analysis.idle.by_cause.items() if time} == {
        "compilation": 10,
        "data loading": 2 * 60 - 10,
        "host sync": 2 * 4,
        "unrecorded": 2 * 5,
    }
    assert analysis.busy_time + analysis.idle.total == analysis.duration


@pytest.mark.parametrize("rank", ["fast_rank", "slow_rank"])
def test_each_column_follows_from_the_others(rank: str, request: pytest.FixtureRequest) -> None:
    """Of the tables of ranks, of idle time, of host work, of engines and of operators."""
    trace: Trace = request.getfixturevalue(rank)
    found, events = analyze_trace(trace, rank), trace.device_events
    operators = operator_shares(operator_stats(trace))

    assert found.step_time * found.steps == pytest.approx(found.duration)
    assert found.busy_time + found.idle.total == pytest.approx(found.duration)
    assert found.idle_fraction == pytest.approx(1 - found.busy_time / found.duration)
    assert found.step_time_excl_comm_wait * found.steps == pytest.approx(found.duration - found.exposed_comm)
    assert found.exposed_comm <= found.comm_time <= sum(each.time for each in found.collectives)
    not_compiling = found.idle.total - found.idle.by_cause["compilation"]
    assert sum(row.idle for row in found.idle.host_work) == pytest.approx(not_compiling)
    assert sum(row.events for row in found.engines) == sum(row.device_events for row, _ in operators) == len(events)
    assert sum(row.time for row in found.engines) == pytest.approx(sum(row.device_time for row, _ in operators))
    assert sum(share for _, share in operators) == pytest.approx(1)


def test_larger_count_of_compilations_is_taken(slow_rank: Trace) -> None:
    """The bridge's metric counts graphs that the trace may not show."""
    slow_rank.bridge_metrics = {"graph_compilation": {"TotalNumber": 3}}

    compilations = analyze_trace(slow_rank, "rank 1").compilations
    assert compilations == CompilationStats(counted=3, recorded=1, time=10)
    assert compilations.count == 3


def test_host_trace_has_no_idle_time(builder: TraceBuilder) -> None:
    analysis = analyze_trace(builder.trace(builder.operator("aten::mm", 0, 5)), "host")

    assert (analysis.has_device, analysis.idle.by_cause, analysis.duration) == (False, {}, 5)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "host to device"),
        ("h2d", "host to device"),
        ("host_to_device", "host to device"),
        ("Memcpy DtoD", "device to device"),
        ("memcpy", "unknown direction"),
    ],
)
def test_direction_of_a_copy_is_read_from_its_name(name: str, direction: str) -> None:
    assert copy_direction(name) == direction
