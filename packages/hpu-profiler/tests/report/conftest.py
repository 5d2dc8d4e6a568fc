"""Two ranks that meet in a collective, the second of which loads its data slowly."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_profiler.report.analysis import report
from hpu_profiler.report.model import Report
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reading import read

from ..traces import Event, Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name

_LOADING = "[pl][profile][_TrainingEpochLoop].train_dataloader_next"


def _events(writer: Writer, loading: float) -> list[Event]:
    """Return two steps of 100 us: loading, computing for 20 us, a collective until 90 us, a value for the host."""
    events: list[Event] = []
    for step in range(2):
        start = 1000.0 + 100 * step
        number = 10 * step + 1
        events += [
            writer.step(step, start, 100),
            writer.span(_LOADING, start, loading),
            writer.operator("aten::mm", start + loading, 2, number),
            writer.work("aten::mm", start + loading, 20, "MME", number=number),
            # Overlaps with 5 us of the kernel.
            writer.work("hccl:allreduce", start + loading + 15, 75 - loading, "NIC", size=64),
            writer.operator("aten::item", start + 90, 4, number + 1),
            writer.work("Memcpy DtoH", start + 94, 1, "DMA", "gpu_memcpy", number=number + 1, size=4),
        ]
    return events


@pytest.fixture
def quick(writer: Writer, make_trace: Callable[..., Path]) -> Trace:
    """Rank 0, which loads for 5 us."""
    about = {"rank": 0, "world_size": 2, "stage": "training", "host": "here"}
    name = "fit-0-training.1.pt.trace.json"
    cards = [{"name": "GAUDI2", "simulated": True}]
    return read(make_trace(*_events(writer, 5), name=name, hpu_profiler=about, deviceProperties=cards))


@pytest.fixture
def slow(writer: Writer, make_trace: Callable[..., Path]) -> Trace:
    """Rank 1, which loads for 60 us; it compiles a graph again meanwhile, for 10 us."""
    about = {"rank": 1, "world_size": 2, "stage": "training", "host": "here"}
    compilation = writer.work("recompilation", 1010, 10, "Synapse/log", "Runtime")
    name = "fit-1-training.1.pt.trace.json"
    return read(make_trace(*_events(writer, 60), compilation, name=name, hpu_profiler=about))


@pytest.fixture
def made(slow: Trace, quick: Trace) -> Report:
    """The report on both."""
    return report([slow, quick])
