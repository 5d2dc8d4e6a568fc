"""HPUProfiler on one device."""

import importlib.metadata
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.profiler

from hpu_core import HPUAccelerator, SingleHPUStrategy, bridge, registration
from hpu_profiler import HPUProfiler
from hpu_profiler.analysis.operators import operator_stats
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import find_traces, read_trace

from ..models import Model, loader, trainer  # noqa: TID252 - as above

pytestmark = [
    pytest.mark.hpu,
    pytest.mark.skipif(
        not hasattr(torch.profiler.ProfilerActivity, "HPU"),
        reason="torch < 2.7 has no ProfilerActivity.HPU, and the bridge adds one up to SynapseAI 1.19 only",
    ),
]


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that returns a Trainer for one device."""

    def make(profiler: Any) -> Any:
        return trainer(tmp_path, profiler, accelerator=HPUAccelerator(), strategy=SingleHPUStrategy())

    return make


@pytest.fixture
def fit(make_trainer: Callable[..., Any], tmp_path: Path) -> Callable[..., Trace]:
    """Return a function that trains with a profiler and returns the trace."""

    def fit_model(profiler: HPUProfiler, width: int = 16) -> Trace:
        make_trainer(profiler).fit(Model(width=width), loader(6, width))
        (path,) = find_traces([tmp_path])
        return read_trace(path)

    return fit_model


def test_trace_has_device_events(fit: Callable[..., Trace]) -> None:
    trace = fit(HPUProfiler())
    kernels = [event for event in trace.device_events if event.kind == "kernel"]

    assert (trace.device_name, trace.simulated, len(trace.steps)) == ("GAUDI2", True, 3)
    assert {"MME", "TPC", "DMA"} <= {event.engine for event in trace.device_events}
    assert {"aten::mm", "aten::addmm", "aten::threshold_backward"} <= {event.name for event in kernels}


def test_summary_has_the_device_time_of_the_trace(fit: Callable[..., Trace]) -> None:
    trace = fit(HPUProfiler(filename="perf-logs", row_limit=-1))

    rows = operator_stats(trace)
    text = next(trace.path.parent.glob("*.txt")).read_text()
    assert sum(row.device_time for row in rows) == pytest.approx(sum(event.duration for event in trace.device_events))
    names = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {row.name for row in rows if row.device_events} <= names
    assert re.search(r"HPU time total: .*\(simulated\)", text)


def test_trace_has_the_bridges_count_of_compilations(fit: Callable[..., Trace]) -> None:
    """No other test uses this width, so lazy mode compiles new graphs."""
    trace = fit(HPUProfiler(schedule=None), width=23)

    count = trace.bridge_metrics["graph_compilation"]["TotalNumber"]
    assert (count > 0) is bridge.is_lazy()
    assert len(trace.compilations) == count


def test_open_device_is_recorded_without_a_trainer(tmp_path: Path) -> None:
    bridge.open_device()
    profiler = HPUProfiler(dirpath=tmp_path)
    with profiler.profile("my_custom_action"):
        torch.ones(3, device="hpu") + 1

    summary = profiler.summary()
    assert "HPU time" in summary
    assert "aten::add" in summary


def test_trainer_knows_the_profiler_by_name(make_trainer: Callable[..., Any]) -> None:
    if "hpu-profiler" not in {distribution.name for distribution in importlib.metadata.distributions()}:
        pytest.skip("`profiler='hpu'` needs the entry point of an installed hpu-profiler")
    registration.register()

    assert type(make_trainer("hpu").profiler) is HPUProfiler
