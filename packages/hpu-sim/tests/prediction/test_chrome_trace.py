"""Predicted step as a Chrome trace."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options
from hpu_sim.prediction.chrome_trace import trace_of
from hpu_sim.prediction.recording import HOST_READ, Collective, Operation, StepRecording
from hpu_sim.prediction.time_model import IDLE, Clock

from .predicting import clock_of

_FRAME = "train.py(12): training_step"


def _trace(step: StepRecording, *, lazy: bool = False) -> dict[str, Any]:
    return trace_of(clock_of(step, "GAUDI3", "lazy" if lazy else "eager"))


def _operation(name: str, flops: int = 0, **kwargs: Any) -> Operation:
    accesses = ((0, 1 << 20),)
    return Operation(name, "forward", "net.0", "bfloat16", flops, accesses, accesses, 0, **kwargs)


@pytest.fixture
def step() -> StepRecording:
    """A product, a collective beside an element-wise operator, a read of a value, and another operator."""
    return StepRecording(
        operations=[
            _operation("aten.mm", 1 << 40),
            _operation("aten.relu"),
            _operation(HOST_READ, host_sync=True, frame=_FRAME),
            _operation("aten.add_"),
        ],
        collectives=[Collective("allreduce", "backward", 4096, 4096, tuple(range(8)), is_async=True, after=1)],
    )


def _events(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def test_the_device_and_each_of_its_events_say_that_they_are_predicted(step: StepRecording) -> None:
    trace = _trace(step)

    (device,) = trace["deviceProperties"]
    assert (device["name"], device["predicted"]) == ("GAUDI3", True)
    assert trace["traceEvents"][0]["args"]["name"] == "/device:HPU:0 (predicted, not measured)"
    assert all(event["args"]["predicted"] for event in _events(trace, "kernel"))


def test_events_are_on_the_track_of_their_engine(step: StepRecording) -> None:
    trace = _trace(step)

    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name" and event["pid"] == 0
    }
    assert [(event["name"], names[event["tid"]]) for event in _events(trace, "kernel")] == [
        ("aten::mm", "MME"),
        ("hccl:allreduce", "NIC"),
        ("aten::relu", "TPC"),
        ("aten::add_", "TPC"),
    ]


def test_an_eager_kernel_is_linked_to_its_launch(step: StepRecording) -> None:
    trace = _trace(step)

    launches = {event["args"]["External id"]: event["name"] for event in _events(trace, "cpu_op")}
    kernels = [event for event in _events(trace, "kernel") if not event["name"].startswith("hccl:")]
    assert [launches[event["args"]["External id"]] for event in kernels] == [event["name"] for event in kernels]


def test_a_host_device_synchronization_has_the_line_of_the_program(step: StepRecording) -> None:
    trace = _trace(step, lazy=True)

    (frame,) = _events(trace, "python_function")
    (operator,) = (event for event in _events(trace, "cpu_op") if event["name"] != "graph_launch")
    assert (frame["name"], operator["name"]) == (_FRAME, "aten::item")
    assert (frame["ts"], frame["dur"]) == (operator["ts"], operator["dur"])


def test_a_collective_has_its_bytes(step: StepRecording) -> None:
    trace = _trace(step)

    assert [event["args"].get("bytes") for event in _events(trace, "kernel")] == [None, 4096, None, None]


def test_the_step_takes_as_long_as_in_the_plan(step: StepRecording) -> None:
    """The kernels and what the device waits for are all of it."""
    timeline = clock_of(step, "GAUDI3", "eager").timeline
    trace = _trace(step)
    (annotation,) = _events(trace, "user_annotation")

    kernels = sum(each["dur"] for each in _events(trace, "kernel") if not each["name"].startswith("hccl:"))
    waits = sum(each.seconds for each in timeline.spans if each.name == IDLE)
    assert (annotation["name"], annotation["ts"]) == ("ProfilerStep#1", 0)
    assert annotation["dur"] == pytest.approx(timeline.seconds * 1e6, abs=0.001)
    assert kernels + waits * 1e6 == pytest.approx(annotation["dur"], abs=0.01)


def test_events_of_a_track_do_not_overlap() -> None:
    """Perfetto drops events that overlap without nesting."""
    operations = [_operation("aten.mm", flops) for flops in range(1 << 30, 1 << 40, 1_000_000_007)]
    kernels = _events(_trace(StepRecording(operations), lazy=True), "kernel")

    assert len(kernels) == len(operations)
    assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in itertools.pairwise(kernels))


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_the_trace_of_a_recording_names_the_line_that_reads_a_value() -> None:
    model = torch.nn.Linear(8, 8).to("hpu")

    def program() -> None:
        for _ in range(2):
            with plan.step():
                model(torch.ones(4, 8, device="hpu")).sum().item()

    trace = trace_of(Clock(record_call(program, Options(devices=2)), "GAUDI3"))

    assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (0, 2)
    assert "aten::addmm" in {event["name"] for event in _events(trace, "kernel")}
    (frame,) = (event["name"] for event in _events(trace, "python_function"))
    assert frame.startswith(f"{__file__}(")
    assert frame.endswith("): program")
