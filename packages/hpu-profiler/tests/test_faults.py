"""Faults with a known cost in traces made from the bridge's tables: what the report finds, where, and what it saves.

Two ranks make five steps of 100 ms. The card computes for 80 ms, a collective ends 3 ms later, and the
optimizer's graph takes 14 ms. A fault makes each step longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.trace.reader import read_trace

from .bridge_trace import BridgeTrace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpu_profiler.analysis.job import StageAnalysis

_MS = 1000.0
_STEPS = 5
_SMALL_KERNELS = 4000
_LOADER = "[pl][profile][_TrainingEpochLoop].train_dataloader_next"
_CALLBACK = "[pl][profile][Callback]Sampler.on_train_batch_end"


@dataclass(frozen=True)
class Step:
    """One step of one rank, in milliseconds.

    Attributes:
        loading: Time of the DataLoader.
        compiling: Time of a compilation before the first graph.
        expanding: Time of nodes of `expand` before the product.
        computing: Time of the product.
        small_kernels: Number of kernels that take the time of the product; the rest of it the card waits for launches.
        exposed: Time of the collective after the product.
        waiting: Idle time after a callback has read a value.
        shape: Length of the batch.
    """

    loading: float = 1
    compiling: float = 0
    expanding: float = 0
    computing: float = 80
    small_kernels: int = 1
    exposed: float = 3
    waiting: float = 0
    shape: int = 8


def write_rank(step_of: Callable[[int], Step], rank: int, slowest: float, path: Path) -> Path:
    """Write the trace of a rank; `slowest` is how much longer the product of the slowest rank takes."""
    lines: list[tuple[int, str]] = []
    # The base is the clock's zero.
    trace = BridgeTrace(
        hpu_profiler={"rank": rank, "stage": "training", "host": f"node-{rank // 8}"}, hpu_profiler_call_lines=lines
    )
    now = 0.0
    for index in range(_STEPS):
        step = step_of(index)
        start = now
        trace.torch("user_annotation", _LOADER, now, step.loading * _MS)
        trace.torch("python_function", "data.py(7): __getitem__", now, step.loading * _MS)
        now += step.loading * _MS
        trace.torch("cpu_op", "aten::mm", now, 500, arguments={"Input Dims": [[step.shape, 8]]})
        trace.torch("python_function", "train.py(5): training_step", now, 900)
        if step.compiling:
            trace.host_call("synGraphCompile", now, step.compiling * _MS)
            now += step.compiling * _MS
        trace.enqueue(11, now, 900)
        now += _MS
        if step.expanding:
            trace.engine("*TPC ", "broadcast", now, step.expanding * _MS, recipe=11)
            now += step.expanding * _MS
        computed = now + step.computing * _MS
        period = step.computing * _MS / step.small_kernels
        for kernel in range(step.small_kernels):
            duration = period if step.small_kernels == 1 else 4.0
            trace.engine("*MME ", "toy_gemm", now + kernel * period, duration, recipe=11)
        # Collectives end on all ranks together.
        now = computed + (step.exposed + slowest) * _MS
        trace.torch("cpu_op", "c10d::allreduce_", computed - 13 * _MS, 100)
        trace.engine("*NIC ", "nic_toy", computed - 12 * _MS, now - computed + 12 * _MS)
        trace.engine("*TPC ", "toy_adamw", now, 14 * _MS, recipe=12)
        if step.waiting:
            trace.torch("user_annotation", _CALLBACK, now + _MS, 13 * _MS + 100)
            trace.torch("python_function", "<built-in method item of Tensor object at 0x1>", now + _MS, 13 * _MS)
            trace.torch("cpu_op", "aten::item", now + _MS, 13 * _MS)
            lines.append((int(now + _MS) * 1000, "sampler.py:21 on_train_batch_end"))
        now += (14 + step.waiting + 1) * _MS
        trace.torch("user_annotation", f"ProfilerStep#{index}", start, now - start)
    trace.host.sort(key=lambda event: event["ts"])
    return trace.write(path)


def analyze(folder: Path, *ranks: Callable[[int], Step]) -> StageAnalysis:
    """Return the results for a rank with each of the given steps."""
    longest = max(rank(0).computing for rank in ranks)
    paths = [
        write_rank(rank, number, longest - rank(0).computing, folder / f"fit-{number}.pt.trace.json")
        for number, rank in enumerate(ranks)
    ]
    (stage,) = analyze_job(read_trace(path) for path in paths).stages
    return stage


def _both(**fault: Any) -> tuple[Callable[[int], Step], ...]:
    return (lambda _: Step(**fault),) * 2


def _compiling(index: int) -> Step:
    return Step(compiling=30, shape=8 + index) if index in {1, 3} else Step()


#: Fault: steps of the ranks, kind of the finding, its line, and the time in ms that the step gets longer.
FAULTS: dict[str, tuple[tuple[Callable[[int], Step], ...], str, str, float]] = {
    "slow loader": (_both(loading=31), "data loading", "data.py:7 __getitem__", 30),
    "synchronization in a callback": (_both(waiting=10), "host sync", "sampler.py:21 on_train_batch_end", 10),
    "slow rank": ((lambda _: Step(), lambda _: Step(computing=110)), "straggler", "", 30),
    "slow link": (_both(exposed=33), "exposed communication", "", 30),
    "recompilation": ((_compiling, _compiling), "changing shapes", "train.py:5 training_step", 12),
    "small kernels": (_both(small_kernels=_SMALL_KERNELS), "launch bound", "", 64),
    "expand-heavy model": (_both(expanding=20), "data movement", "", 20),
}


def test_a_healthy_job_has_no_findings(tmp_path: Path) -> None:
    stage = analyze(tmp_path, *_both())

    assert stage.step_time == 100 * _MS
    assert stage.findings == ()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_with_its_line_and_its_cost(fault: str, tmp_path: Path) -> None:
    """The finding comes first. Its saving has what a healthy step spends on the same, and lacks what overlaps."""
    ranks, kind, line, cost = FAULTS[fault]

    finding = analyze(tmp_path, *ranks).findings[0]

    assert (finding.kind, finding.location) == (kind, line)
    assert finding.saving / _MS == pytest.approx(cost, rel=0.15, abs=4)


def test_slow_ranks_of_a_machine_are_one_finding(tmp_path: Path) -> None:
    """Each of them alone would save nothing."""
    fast, slow = (lambda _: Step()), (lambda _: Step(computing=110))

    (finding, *_) = analyze(tmp_path, *[fast] * 8, *[slow] * 8, *[fast] * 8).findings

    assert (
        finding.title == "8 ranks are slow (8 on node-1), rank 8 most: the other ranks wait 30 ms for it in each step"
    )
    assert finding.saving == pytest.approx(30_000)
