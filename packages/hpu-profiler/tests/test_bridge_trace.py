"""What the reader and the report make of each row of the bridge's tables, in traces made from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report import tables
from hpu_profiler.trace.reader import read_trace

from .bridge_rules import LANES, Lane
from .bridge_trace import BridgeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_profiler.analysis.trace_analysis import TraceAnalysis
    from hpu_profiler.trace.model import Trace

_KINDS = {"DMA": "memcpy", "MME": "kernel", "TPC": "kernel", "NIC": "collective"}
_IDLE = {"*PSOC", "*SM", "*PMMU", "*ARC_FARM"}


def _read(trace: BridgeTrace, tmp_path: Path, **options: Any) -> Trace:
    return read_trace(trace.write(tmp_path / "fit.pt.trace.json", **options))


def _analyze(trace: BridgeTrace, tmp_path: Path) -> TraceAnalysis:
    (stage,) = analyze_job([_read(trace, tmp_path)]).stages
    return stage.traces[0]


@pytest.fixture
def trace() -> BridgeTrace:
    """Trace of two steps of 100 us."""
    made = BridgeTrace()
    made.steps(2, 100)
    return made


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.header.strip())
@pytest.mark.parametrize("name", ["toy_name", "memcpy_toy", "memset_toy", "DmaTranspose", "broadcast_fwd"])
def test_every_lane_and_category_follows_the_tables(lane: Lane, name: str, trace: BridgeTrace, tmp_path: Path) -> None:
    trace.engine(lane.header, name, 10, 5, index=3, recipe=11)

    events = _read(trace, tmp_path).device_events
    if lane.header in _IDLE:
        assert events == []
        return
    (event,) = events
    engine = lane.header.strip("* ").removeprefix("P").removeprefix("E").removeprefix("K")
    assert (event.engine, event.recipe) == (engine, 11)
    if engine == "DMA" and name in {"memset_toy", "DmaTranspose"}:
        assert event.kind == {"memset_toy": "memset", "DmaTranspose": "kernel"}[name]
    else:
        assert event.kind == _KINDS.get(engine, "kernel")


def test_kernels_of_a_graph_add_up(tmp_path: Path) -> None:
    trace = BridgeTrace()
    trace.steps(1, 100)
    for start in (10, 50):
        trace.enqueue(11, start, 2)
        trace.engine("*TPC ", "toy_add", start + 10, 4, recipe=11)

    (stage,) = analyze_job([_read(trace, tmp_path)]).stages
    (graphs,) = [each for each in tables.details(stage, max_operators=1) if each.title == "Graphs (recipes)"]
    assert graphs.rows == [("fit", "11", "r_11", "toy_add", "2", "8 us")]


def test_ports_are_communication_and_a_node_of_the_same_name_is_not(trace: BridgeTrace, tmp_path: Path) -> None:
    """40 us of ports in each step, of which a kernel covers 10, and 9 us of `expand`."""
    for step in (0, 100):
        trace.torch("cpu_op", "c10d::allreduce_", step + 5, 3)
        trace.engine("*TPC ", "broadcast", step + 1, 9)
        trace.engine("*MME ", "toy_gemm", step + 20, 20)
        for port in range(24):
            trace.engine("*NIC ", "nic_toy_send", step + 30, 40, index=port)

    analysis = _analyze(trace, tmp_path)

    assert (analysis.comm_time, analysis.exposed_comm, analysis.busy_time) == (80, 60, 118)
    (stats,) = analysis.collectives
    assert (stats.name, stats.calls) == ("allreduce", 2)


def test_calls_of_the_host_are_no_work_of_the_card(trace: BridgeTrace, tmp_path: Path) -> None:
    trace.host_call("memcpy_toy", 10, 50)
    trace.host_call("synToy", 10, 50)
    trace.log("Synapse Logger", "synEventSynchronize", 5, 9, handle="0x1")

    read = _read(trace, tmp_path)
    assert read.device_events == []
    assert {span.name for span in read.spans} == {"memcpy_toy", "synToy", "synEventSynchronize"}


@pytest.mark.parametrize(
    ("name", "is_compilation"),
    [
        ("synGraphCompile", True),
        ("## Call CompiledFxGraph abc ##", False),
        ("entire_frame_compile (dynamo_timed)", True),
    ],
)
def test_compilations_are_what_compiles(name: str, is_compilation: bool, trace: BridgeTrace, tmp_path: Path) -> None:
    if name.startswith("syn"):
        trace.host_call(name, 10, 30)
    else:
        trace.torch("user_annotation", name, 10, 30)

    assert bool(_read(trace, tmp_path).compilations) is is_compilation


def test_nested_calls_of_the_logs_nest(trace: BridgeTrace, tmp_path: Path) -> None:
    """Their begins and ends are in the trace. A call that does not end is left out."""
    trace.log("Bridge Logs", "outer", 10, 40)
    trace.log("Bridge Logs", "inner", 20, 30)
    trace.log("Bridge Logs", "cut", 45, float("inf"))

    assert {span.name: span.interval for span in _read(trace, tmp_path).spans} == {
        "outer": (10, 40),
        "inner": (20, 30),
    }


def test_memory_of_the_card_belongs_to_no_operator(trace: BridgeTrace, tmp_path: Path) -> None:
    """Its events have the thread of the export."""
    trace.torch("cpu_op", "aten::mm", 10, 10)
    trace.memory(12, 4096, 8192)
    trace.memory(15, -4096, 4096)

    read = _read(trace, tmp_path)
    assert read.has_memory
    assert read.operators[0].self_memory == 0


def test_a_second_export_has_no_events_of_the_card_and_a_note(trace: BridgeTrace, tmp_path: Path) -> None:
    trace.engine("*TPC ", "toy_add", 10, 5)

    read = _read(trace, tmp_path, exports=2)

    assert read.device_events == []
    assert "exported a second time" in read.notes[0]


def test_an_unknown_lane_is_busy_time_only(trace: BridgeTrace, tmp_path: Path) -> None:
    event = trace.engine("*NIC ", "toy", 10, 30)
    event["tid"] = 99_000

    analysis = _analyze(trace, tmp_path)

    assert (analysis.busy_time, analysis.comm_time, analysis.exposed_comm) == (30, 0, 0)
    assert analysis.trace.notes == ("1 events of the card are of an unknown engine; they count as busy time only.",)


def test_events_of_another_clock_are_left_out_with_a_note(trace: BridgeTrace, tmp_path: Path) -> None:
    trace.engine("*TPC ", "toy_add", 3.6e9, 5)

    analysis = _analyze(trace, tmp_path)

    assert not analysis.has_device
    assert analysis.trace.notes[0].startswith("The events of the card start 3600 s after the steps")


@pytest.mark.parametrize(
    ("call", "operator"),
    [
        ("<built-in method cpu of Tensor object at 0x7f>", "aten::_to_copy"),
        ("<built-in method tolist of Tensor object at 0x7f>", "aten::_to_copy"),
        ("<built-in method item of Tensor object at 0x7f>", "aten::item"),
        ("<built-in function print>", "aten::item"),
    ],
)
def test_each_call_that_waits_has_its_line(call: str, operator: str, tmp_path: Path) -> None:
    trace = BridgeTrace(
        baseTimeNanoseconds=5_000_000,
        hpu_profiler_call_lines=[[5_020_000, "train.py:12 training_step"], [5_120_000, "train.py:19 training_step"]],
    )
    trace.steps(2, 100)
    for step in (0, 100):
        trace.torch("python_function", "train.py(5): training_step", step + 5, 80)
        trace.torch("python_function", call, step + 20, 40)
        trace.torch("cpu_op", operator, step + 21, 38)
        trace.log("Synapse Logger", "synEventSynchronize", step + 22, step + 58)
        trace.engine("*MME ", "toy_gemm", step + 5, 50)

    (stage,) = analyze_job([_read(trace, tmp_path)]).stages

    (finding,) = [each for each in stage.findings if each.kind == "host sync"]
    assert [(site.location, site.calls, site.time) for site in finding.sites] == [
        ("train.py:12 training_step", 1, 50),
        ("train.py:19 training_step", 1, 45),
    ]


def test_ports_are_named_by_the_bridges_scopes(trace: BridgeTrace, tmp_path: Path) -> None:
    """BRIDGE_FUNCTION_CALLS logs them."""
    trace.log("Bridge Logs", "allgather", 2, 4)
    trace.engine("**NIC ", "toy", 10, 5)

    assert [event.name for event in _read(trace, tmp_path).device_events] == ["allgather"]
