"""Files become traces."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.trace.reading import TraceError, find, read

from ..traces import Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.mark.parametrize(
    ("cat", "kind"),
    [
        ("Kernel", "kernel"),
        ("kernel", "kernel"),
        ("hpu_op", "kernel"),
        ("Memcpy", "copy"),
        ("gpu_memcpy", "copy"),
        ("Memset", "memset"),
        ("gpu_memset", "memset"),
    ],
)
def test_a_cards_work_is_known_by_either_way_of_writing(
    cat: str, kind: str, writer: Writer, make_trace: Callable[..., Path]
) -> None:
    """The bridge's categories up to 1.19, and torch's own."""
    (work,) = read(make_trace(writer.work("gemm", 5, 2, "MME", cat))).work

    assert (work.name, work.kind, work.lane, work.begin, work.end) == ("gemm", kind, "MME", 5, 7)


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        ("reduce_0", "NIC"),
        ("hccl:allreduce", "TPC"),
        ("all_gather_1", "TPC"),
        ("hccl:send", "NIC"),
        ("hccl:recv", "TPC"),
    ],
)
def test_a_collective_is_known_by_its_engine_or_name(
    name: str, lane: str, writer: Writer, make_trace: Callable[..., Path]
) -> None:
    """What runs on the network engine, or is called like one."""
    (work,) = read(make_trace(writer.work(name, 0, 1, lane))).work

    assert work.kind == "collective"


def test_what_the_host_logs_is_no_work_of_the_card(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """The bridge writes its own calls under the card's process, as begins and ends."""
    place = {"pid": writer.CARD, "tid": 4}
    events = [
        {"ph": "B", "name": "synGraphCompile", **place, "ts": 1},
        {"ph": "B", "name": "inner", **place, "ts": 2},
        {"ph": "E", **place, "ts": 3},
        {"ph": "E", **place, "ts": 9},
        writer.work("launch", 0, 1, "Synapse/log"),
    ]

    trace = read(make_trace(*events))

    assert trace.work == []
    assert [(span.name, span.begin, span.end) for span in trace.compilations] == [("synGraphCompile", 1, 9)]
    assert [span.name for span in trace.spans] == ["launch", "inner"]


def test_operators_know_their_own_time(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """What an operator calls is not its own, whoever that calls in turn; other threads are others."""
    trace = read(
        make_trace(
            writer.operator("aten::linear", 0, 10),
            writer.operator("aten::addmm", 1, 6),
            writer.operator("aten::copy_", 2, 1),
            writer.operator("aten::mul", 3, 4, thread=8),
        )
    )

    assert {each.name: each.own for each in trace.operators} == {
        "aten::linear": 4,
        "aten::addmm": 5,
        "aten::copy_": 1,
        "aten::mul": 4,
    }


def test_memory_belongs_to_the_innermost_operator(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Less what it gave back; what nobody took by an operator is nobody's."""
    trace = read(
        make_trace(
            writer.operator("aten::linear", 0, 10),
            writer.operator("aten::addmm", 1, 6),
            writer.memory(2, 64),
            writer.memory(3, -16),
            writer.memory(8, 5),
            writer.memory(20, 7),
        )
    )

    assert trace.has_memory
    assert {each.name: each.memory for each in trace.operators} == {"aten::linear": 5, "aten::addmm": 48}


def test_work_is_linked_by_torchs_number(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """The number of the operator, which the work repeats."""
    trace = read(make_trace(writer.operator("aten::mm", 0, 3, 5), writer.work("gemm", 1, 1, number=5)))

    assert trace.work[0].operator is trace.operators[0]


def test_work_is_linked_by_its_launch(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """A launch on the host has the operator's number, and the work has the launch's."""
    launch = writer.span("launch", 1, 0) | {"cat": "Runtime", "args": {"External id": 5, "correlation": 9}}

    trace = read(make_trace(writer.operator("aten::mm", 0, 3, 5), launch, writer.work("gemm", 20, 1, correlation=9)))

    assert trace.work[0].operator is trace.operators[0]


def test_work_is_linked_by_an_arrow(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """It starts in the operator and ends where the work begins."""
    arrow = [
        {"ph": "s", "id": 1, "cat": "async", "name": "flow", "pid": writer.HOST, "tid": 7, "ts": 2},
        {"ph": "f", "id": 1, "cat": "async", "name": "flow", "pid": writer.CARD, "tid": 1, "ts": 20},
    ]

    trace = read(make_trace(writer.operator("aten::mm", 0, 3), *arrow, writer.work("gemm", 20, 1)))

    assert trace.work[0].operator is trace.operators[0]


def test_work_without_a_link_has_no_operator(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """As of a graph in lazy mode."""
    trace = read(make_trace(writer.operator("aten::mm", 0, 3, 5), writer.work("fused_kernel", 1, 1)))

    assert trace.work[0].operator is None


def test_a_step_that_was_cut_short_is_no_step(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Who wrote the trace says how many are whole."""
    steps = [writer.step(3, 0, 5), writer.step(4, 5, 5), writer.step(5, 10, 1)]

    trace = read(make_trace(*steps, hpu_profiler={"steps": 2}))

    assert [step.name for step in trace.steps] == ["ProfilerStep#3", "ProfilerStep#4"]
    assert trace.window == (0, 10)


def test_marks_are_no_operators(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Some torch releases write Lightning's actions as operators."""
    trace = read(make_trace(writer.operator("[pl][profile]run_training_batch", 0, 5)))

    assert trace.operators == []
    assert [span.name for span in trace.spans] == ["[pl][profile]run_training_batch"]


@pytest.mark.parametrize(
    ("about", "place"),
    [
        ({"hpu_profiler": {"rank": 3, "world_size": 4}}, (3, 4)),
        ({"distributedInfo": {"rank": 1, "world_size": 2}}, (1, 2)),
        ({}, (None, 1)),
    ],
    ids=["our own", "torch's", "none"],
)
def test_a_trace_knows_its_rank(about: dict[str, Any], place: object, make_trace: Callable[..., Path]) -> None:
    """By what HPUProfiler wrote into it, or torch."""
    trace = read(make_trace(**about))

    assert (trace.rank, trace.world_size) == place


def test_a_simulated_card_is_said(make_trace: Callable[..., Path]) -> None:
    """The simulator marks the card's properties."""
    trace = read(make_trace(deviceProperties=[{"name": "GAUDI2", "simulated": True, "droppedEvents": 2}]))

    assert (trace.card, trace.simulated, trace.dropped) == ("GAUDI2", True, 2)


def test_a_compressed_trace_is_read(make_trace: Callable[..., Path], writer: Writer, tmp_path: Path) -> None:
    """Torch compresses traces where it is told to."""
    plain = make_trace(writer.step(0, 0, 1))
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))

    assert len(read(path).steps) == 1


@pytest.mark.parametrize("content", ['{"traceEvents": [', "", '{"schemaVersion": 1}', "7"])
def test_half_a_trace_is_an_error_that_names_it(content: str, tmp_path: Path) -> None:
    """And so is JSON that is none."""
    path = tmp_path / "a.pt.trace.json"
    path.write_text(content)

    with pytest.raises(TraceError, match=r"a\.pt\.trace\.json is "):
        read(path)


def test_events_alone_are_a_trace(tmp_path: Path, writer: Writer) -> None:
    """Chrome's format allows it."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([writer.step(0, 0, 1)]))

    assert len(read(path).steps) == 1


def test_traces_are_found_in_folders(make_trace: Callable[..., Path], tmp_path: Path) -> None:
    """And files are what they are; what a killed process left is none."""
    second, first = make_trace(name="b.2.pt.trace.json"), make_trace(name="a.1.pt.trace.json")
    make_trace(name=".c.3.pt.trace.json.part.json")

    assert find([tmp_path, second]) == [first, second, second]


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_nothing_to_find_is_an_error(name: str, tmp_path: Path) -> None:
    """A wrong path is told at once."""
    (tmp_path / "empty").mkdir()

    with pytest.raises(FileNotFoundError, match=name):
        find([tmp_path / name])
