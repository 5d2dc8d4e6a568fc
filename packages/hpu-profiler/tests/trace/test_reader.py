"""Reading trace files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.trace.reader import TraceError, find_traces, read_trace

from ..trace_builder import JsonEvent, TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.mark.parametrize(
    ("cat", "track", "kind"),
    [
        ("Kernel", "MME", "kernel"),
        ("kernel", "MME", "kernel"),
        ("hpu_op", "TPC", "kernel"),
        ("Memcpy", "DMA", "memcpy"),
        ("gpu_memcpy", "DMA", "memcpy"),
        ("Memset", "DMA", "memset"),
        ("gpu_memset", "DMA", "memset"),
        ("Runtime", "NIC", "collective"),
        ("kernel", "NIC", "collective"),
    ],
)
def test_device_events_of_both_writers_are_read(cat: str, track: str, kind: str, builder: TraceBuilder) -> None:
    """The bridge has its own categories up to SynapseAI 1.19; torch has others."""
    (event,) = builder.trace(builder.device_event("gemm", 5, 2, track, cat)).device_events

    assert (event.name, event.kind, event.engine, event.start, event.end) == ("gemm", kind, track, 5, 7)


def test_python_functions_are_frames(builder: TraceBuilder) -> None:
    """Short calls and functions in C are left out."""
    trace = builder.trace(
        builder.frame("train.py(5): training_step", 0, 50),
        builder.frame("train.py(9): helper", 10, 4),
        builder.frame("<built-in method sum>", 20, 9),
    )

    assert [frame.name for frame in trace.frames] == ["train.py(5): training_step"]


def test_events_may_lack_process_thread_and_arguments(builder: TraceBuilder) -> None:
    """Servers such as vllm-gaudi write their own events."""
    trace = builder.trace(
        {"ph": "X", "name": "prefill", "ts": 5, "dur": 10},
        {"ph": "X", "cat": "kernel", "ts": 7, "dur": 2},
        {"ph": "C", "name": "padding", "ts": 6, "args": {"share": 0.25}},
        {"ph": "M", "name": "process_name"},
        {"ph": "B", "name": "decode", "ts": 20},
        {"ph": "E", "ts": 25},
    )

    assert [(span.name, span.interval) for span in trace.spans] == [("prefill", (5, 15)), ("decode", (20, 25))]
    assert len(trace.device_events) == 1


def test_metadata_of_the_trainer_is_read(builder: TraceBuilder) -> None:
    trace = builder.trace(
        hpu_profiler={
            "stage": "validation",
            "libraries": ["torch"],
            "sources": {"[LightningModule]M.training_step": "train.py:5 training_step"},
        }
    )

    assert trace.stage == "validate"
    assert trace.libraries == {"torch"}
    assert trace.sources == {"[LightningModule]M.training_step": "train.py:5 training_step"}


def test_self_time_excludes_callees(builder: TraceBuilder) -> None:
    """An operator of another thread is not a callee."""
    trace = builder.trace(
        builder.operator("aten::linear", 0, 10),
        builder.operator("aten::addmm", 1, 6),
        builder.operator("aten::copy_", 2, 1),
        builder.operator("aten::mul", 3, 4, thread=8),
    )

    assert {operator.name: operator.self_time for operator in trace.operators} == {
        "aten::linear": 4,
        "aten::addmm": 5,
        "aten::copy_": 1,
        "aten::mul": 4,
    }


def test_allocations_belong_to_the_innermost_operator(builder: TraceBuilder) -> None:
    """An allocation outside of any operator belongs to none."""
    trace = builder.trace(
        builder.operator("aten::linear", 0, 10),
        builder.operator("aten::addmm", 1, 6),
        builder.allocation(2, 64),
        builder.allocation(3, -16),
        builder.allocation(8, 5),
        builder.allocation(20, 7),
    )

    assert trace.has_memory
    assert {operator.name: operator.self_memory for operator in trace.operators} == {
        "aten::linear": 5,
        "aten::addmm": 48,
    }


def _flow(builder: TraceBuilder) -> list[JsonEvent]:
    """Return a flow from within an operator to the start of a device event."""
    flow = {"id": 1, "cat": "async", "name": "flow"}
    device = {"pid": builder.DEVICE_PID, "tid": builder.TRACKS["TPC"]}
    return [{"ph": "s", **flow, "pid": builder.HOST_PID, "tid": 7, "ts": 2}, {"ph": "f", **flow, **device, "ts": 20}]


@pytest.mark.parametrize(
    ("links", "operator", "ids"),
    [
        (lambda _: [], "aten::mm", {"external_id": 5}),
        # The launch has the operator's external id, and the device event has the launch's correlation id.
        (lambda builder: [builder.launch(1, 2, correlation=9, external_id=5)], "aten::mm", {"correlation": 9}),
        (_flow, "aten::mm", {}),
        (lambda _: [], None, {}),
    ],
    ids=["external id", "correlation id", "flow", "no link"],
)
def test_device_event_is_linked_to_its_operator(
    links: Callable[[TraceBuilder], list[JsonEvent]],
    operator: str | None,
    ids: dict[str, Any],
    builder: TraceBuilder,
) -> None:
    """A launch is not an annotation, and a flow leads to the event that starts at its end."""
    events = [*links(builder), builder.device_event("gemm", 20, 1, **ids), builder.device_event("other", 25, 1)]
    trace = builder.trace(builder.operator("aten::mm", 0, 3, 5), *events)

    event, other = trace.device_events
    assert other.operator is None
    assert (event.operator.name if event.operator else None) == operator
    assert trace.spans == []


def test_incomplete_step_is_left_out(builder: TraceBuilder) -> None:
    """HPUProfiler writes the number of complete steps."""
    steps = [builder.step(3, 0, 5), builder.step(4, 5, 5), builder.step(5, 10, 1)]

    trace = builder.trace(*steps, hpu_profiler={"steps": 2})

    assert [step.name for step in trace.steps] == ["ProfilerStep#3", "ProfilerStep#4"]
    assert trace.window == (0, 10)


def test_annotation_is_not_an_operator(builder: TraceBuilder) -> None:
    """Some torch releases write Lightning's actions with the category of operators."""
    trace = builder.trace(builder.operator("[pl][profile]run_training_batch", 0, 5))

    assert trace.operators == []
    assert [span.name for span in trace.spans] == ["[pl][profile]run_training_batch"]


@pytest.mark.parametrize(
    ("metadata", "rank_and_world_size"),
    [
        ({"hpu_profiler": {"rank": 3, "world_size": 4}}, (3, 4)),
        ({"distributedInfo": {"rank": 1, "world_size": 2}}, (1, 2)),
        ({}, (None, 1)),
    ],
    ids=["HPUProfiler", "torch", "none"],
)
def test_rank_is_read_from_metadata(
    metadata: dict[str, Any], rank_and_world_size: object, builder: TraceBuilder
) -> None:
    trace = builder.trace(**metadata)

    assert (trace.rank, trace.world_size) == rank_and_world_size


def test_compressed_trace_is_read(builder: TraceBuilder, tmp_path: Path) -> None:
    plain = builder.write(builder.step(0, 0, 1))
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))

    assert len(read_trace(path).steps) == 1


@pytest.mark.parametrize("content", ['{"traceEvents": [', "", '{"schemaVersion": 1}', "7"])
def test_file_that_is_not_a_trace_is_named_in_the_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt.trace.json"
    path.write_text(content)

    with pytest.raises(TraceError, match=r"a\.pt\.trace\.json is not "):
        read_trace(path)


def test_list_of_events_is_a_trace(tmp_path: Path, builder: TraceBuilder) -> None:
    """The Chrome trace format allows it."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([builder.step(0, 0, 1)]))

    assert len(read_trace(path).steps) == 1


def test_traces_are_found_in_directories(builder: TraceBuilder, tmp_path: Path) -> None:
    """A file is taken as it is. The partial file of a killed process is ignored."""
    second, first = builder.write(name="b.2.pt.trace.json"), builder.write(name="a.1.pt.trace.json")
    builder.write(name=".c.3.pt.trace.json.part.json")

    assert find_traces([tmp_path, second]) == [first, second, second]


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_path_without_traces_is_named_in_the_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(FileNotFoundError, match=name):
        find_traces([tmp_path / name])


def test_a_trace_that_torch_writes_for_a_device_is_read(builder: TraceBuilder) -> None:
    """As Kineto writes one of CUDA: a process for each device, a thread for each stream, and copies of annotations."""
    host, stream = {"ph": "X", "pid": 4242, "tid": 4242}, {"ph": "X", "pid": 0, "tid": 7}
    trace = builder.trace(
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7 "}},
        {"cat": "user_annotation", "name": "ProfilerStep#3", **host, "ts": 0, "dur": 100},
        {"cat": "gpu_user_annotation", "name": "ProfilerStep#3", **stream, "ts": 12, "dur": 60},
        {
            "cat": "cuda_runtime",
            "name": "cudaStreamSynchronize",
            **host,
            "ts": 36,
            "dur": 38,
            "args": {"correlation": 4},
        },
        {"cat": "cuda_sync", "name": "Stream Synchronize", **stream, "ts": 36, "dur": 38},
        {"cat": "overhead", "name": "Activity Buffer Request", **host, "ts": 2, "dur": 1},
        {"cat": "kernel", "name": "ampere_sgemm", **stream, "ts": 20, "dur": 30},
        {"cat": "kernel", "name": "ncclDevKernel_AllReduce", **stream, "ts": 50, "dur": 20},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoH", **stream, "ts": 71, "dur": 1},
    )

    assert [(each.kind, each.engine) for each in trace.device_events] == [
        ("kernel", "compute"),
        ("collective", "compute"),
        ("memcpy", "compute"),
    ]
    assert [step.interval for step in trace.steps] == [(0, 100)]
    assert [span.name for span in trace.spans] == ["cudaStreamSynchronize"]


def test_durations_of_a_clock_that_was_set_back_count_as_zero(tmp_path: Path) -> None:
    """Kineto of torch 2.13 writes a sign before the fraction as well."""
    path = tmp_path / "fit.pt.trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 5.0, "dur": -299999998.-750}]}'
    )

    trace = read_trace(path)

    assert trace.operators[0].interval == (5.0, 5.0)
    assert "a clock was set back" in trace.notes[0]
