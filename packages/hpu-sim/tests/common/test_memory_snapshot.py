"""Tests of memory snapshots, which torch's own module reads."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch.cuda import _memory_viz

from hpu_sim import plan
from hpu_sim.common import memory_snapshot
from hpu_sim.common.memory_snapshot import MemorySnapshot
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

if TYPE_CHECKING:
    from pathlib import Path


def _snapshot() -> MemorySnapshot:
    """Return one in which storage 1 grew, 2 was released, 3 has its memory, and 4 was too large."""
    snapshot = MemorySnapshot()
    snapshot.add([(1, 100), (2, 300), (1, 28)])
    snapshot.add([(2, -300), (3, 300)])
    snapshot.add_failure(1 << 40, 1 << 30)
    return snapshot


def test_snapshot_is_that_of_torch() -> None:
    found = _snapshot().to_dict()

    (segment,) = found["segments"]
    events = [(each["action"], each["size"]) for each in found["device_traces"][0]]
    assert "total_allocated: 428.0B" in _memory_viz.segsum(found)
    assert "raise OutOfMemoryError # 1.0TiB requested, 1.0GiB free" in _memory_viz.trace(found)
    assert "snapshot.pickle" in _memory_viz.trace_plot(found)
    assert f"test_memory_snapshot.py:{_snapshot.__code__.co_firstlineno + 4}:_snapshot" in _memory_viz.memory(
        found, lambda text: text
    )
    assert sum(each["size"] for each in segment["blocks"]) == segment["total_size"]
    freed = [("free_requested", 300), ("free_completed", 300)]
    assert events[-4:] == [*freed, ("alloc", 300), ("oom", 1 << 40)]


def test_ranks_are_devices(tmp_path: Path) -> None:
    for rank in (0, 2):
        memory_snapshot.write(_snapshot().to_dict(), tmp_path / str(rank))

    merged = memory_snapshot.merge({0: tmp_path / "0", 2: tmp_path / "2"})

    assert [len(each) for each in merged["device_traces"]] == [9, 0, 9]
    assert [each["device"] for each in merged["segments"]] == [0, 2]


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_plan_names_lines_and_categories(tmp_path: Path) -> None:
    """Also in a backward pass, whose thread has no lines of its own."""

    def train() -> None:
        model = torch.nn.Linear(8, 8).to("hpu")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            with plan.step():
                loss = model(torch.ones(4, 8, device="hpu")).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    path = tmp_path / "snapshot.pickle"
    recording = record_call(train, Options(), snapshot=path)

    snapshot = pickle.loads(path.read_bytes())  # noqa: S301 - written above
    made = [each for each in snapshot["device_traces"][0] if each["action"] == "alloc"]
    lines = {
        each["category"]: frame["line"] - train.__code__.co_firstlineno
        for each in made
        for frame in each["frames"]
        if frame["name"] == "train"
    }
    used, most = 0, 0
    for each in snapshot["device_traces"][0]:
        used += {"alloc": each["size"], "free_completed": -each["size"]}.get(each["action"], 0)
        most = max(most, used)
    steps = [recording.setup, *recording.steps]
    assert (lines["parameters"], lines["gradients"], lines["optimizer state"]) == (1, 7, 8)
    assert most == max(sum(sample.by_category) for step in steps for sample in step.samples)
