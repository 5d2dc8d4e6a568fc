"""Fixtures for all tests: a clean environment and traces to read."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.trace.model import Trace

from .trace_builder import JsonEvent, TraceBuilder


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of Lightning and torch about very small programs."""
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        # Schedules of tests that need no warm-up.
        "Profiler won't be using warmup",
        "Warning. Profiler clears events at the end of each cycle",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Unset HABANA_PROFILE, and restore the environment afterwards."""
    with mock.patch.dict(os.environ):
        os.environ.pop("HABANA_PROFILE", None)
        yield


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    """Builder for the events of a trace, and for its file."""
    return TraceBuilder(tmp_path)


def _rank_events(builder: TraceBuilder, loading: float) -> list[JsonEvent]:
    """Return two steps of 100 us: data loading, a kernel of 20 us, a collective until 90 us, a copy to the host."""
    events: list[JsonEvent] = []
    for step in range(2):
        start = 1000.0 + 100 * step
        number = 10 * step + 1
        events += [
            builder.step(step, start, 100),
            builder.annotation("[pl][profile][_TrainingEpochLoop].train_dataloader_next", start, loading),
            builder.operator("aten::mm", start + loading, 2, number),
            builder.device_event("aten::mm", start + loading, 20, "MME", external_id=number),
            # Overlaps with the kernel for 5 us.
            builder.device_event("nic_toy_send", start + loading + 15, 75 - loading, "NIC"),
            builder.operator("aten::item", start + 90, 4, number + 1),
            builder.device_event("Memcpy DtoH", start + 94, 1, "DMA", "gpu_memcpy", external_id=number + 1),
        ]
    return events


@pytest.fixture
def fast_rank(builder: TraceBuilder) -> Trace:
    """Trace of rank 0, which loads data for 5 us per step."""
    return builder.trace(
        *_rank_events(builder, 5),
        name="fit-0-training.1.pt.trace.json",
        hpu_profiler={"rank": 0, "world_size": 2, "stage": "training", "host": "node-0"},
        deviceProperties=[{"name": "GAUDI2"}],
    )


@pytest.fixture
def slow_rank(builder: TraceBuilder) -> Trace:
    """Trace of rank 1, which loads data for 60 us per step and compiles a graph for 10 us of the first step."""
    return builder.trace(
        *_rank_events(builder, 60),
        builder.host_call("synGraphCompile", 1010, 10),
        name="fit-1-training.1.pt.trace.json",
        hpu_profiler={"rank": 1, "world_size": 2, "stage": "training", "host": "node-0"},
    )


@pytest.fixture
def job(slow_rank: Trace, fast_rank: Trace) -> JobAnalysis:
    """Results for both ranks."""
    return analyze_job([slow_rank, fast_rank])
