"""Results for a trace that is read in parts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.analysis.launches import LaunchStats
from hpu_profiler.analysis.trace_analysis import merge_analyses
from hpu_profiler.report.json import to_dict
from hpu_profiler.trace import reader
from hpu_profiler.trace.reader import read_parts, read_trace

from ..bridge_trace import BridgeTrace  # noqa: TID252 - pytest gives the folder of tests no absolute name
from ..trace_builder import TraceBuilder  # noqa: TID252 - as above


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Trace of 12 equal steps of 100 us, each with a graph, a collective, a copy and host work."""
    trace = BridgeTrace(distributedInfo={"rank": 0, "world_size": 2})
    trace.steps(12, 100)
    for step in range(0, 1200, 100):
        trace.torch("user_annotation", "[pl][profile][_TrainingEpochLoop].train_dataloader_next", step, 4)
        trace.torch("cpu_op", "aten::mm", step + 5, 3, arguments={"Input Dims": [[1]]})
        trace.torch("cpu_op", "aten::item", step + 85, 10)
        trace.enqueue(11, step + 9, 2)
        trace.engine("*MME ", "toy_gemm", step + 15, 20, recipe=11)
        trace.engine("*TPC ", "broadcast", step + 36, 4, recipe=11)
        trace.engine("*NIC ", "nic_toy", step + 40, 40, bytes=4096)
        trace.engine("*PDMA", "memcpy_d2h", step + 90, 2, bytes=4)
        # Otherwise the idle time after the copy would end with the part.
        trace.engine("*MME ", "toy_gemm", step + 98, 2)
    return trace.write(tmp_path / "fit-0.pt.trace.json")


def _in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> JobAnalysis:
    monkeypatch.setattr(reader, "MAX_BYTES", path.stat().st_size // 3)
    assert len(list(read_parts(path))) > 2
    return analyze_job(read_parts(path))


def _report(job: JobAnalysis) -> Any:
    return json.loads(json.dumps(to_dict(job)), parse_float=lambda text: round(float(text), 6))


def test_results_are_those_of_the_whole_trace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _report(analyze_job([read_trace(path)]))

    assert _report(_in_parts(path, monkeypatch)) == whole


def test_a_shape_of_an_earlier_part_is_not_new(
    builder: TraceBuilder, write_trace: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [1, 1, 1, 2, 1, 2, 1, 3]
    events = [builder.step(index, 100 * index, 100) for index in range(8)]
    events += [builder.operator("aten::mm", 100 * i + 5, 10, shapes=[[size]]) for i, size in enumerate(lengths)]

    job = _in_parts(write_trace(*events), monkeypatch)

    assert job.stages[0].traces[0].new_shapes == 2


def test_steps_that_were_cut_are_left_out(
    builder: TraceBuilder, write_trace: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [builder.step(index, 100 * index, 100) for index in range(10)]

    job = _in_parts(write_trace(*events, hpu_profiler={"steps": 9}), monkeypatch)

    assert job.stages[0].traces[0].steps == 9


def test_medians_become_means_by_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (analysis,) = analyze_job([read_trace(path)]).stages[0].traces
    other = replace(analysis, launches=LaunchStats(launches=36, delay=8.0, max_delay=9.0))

    launches = merge_analyses([analysis, other]).launches

    assert (launches.launches, launches.delay, launches.max_delay) == (48, 7.0, 9.0)
