"""Trace in the shape of vLLM's profiler for hpu: nested spans and counters of an engine, without steps and operators.

Names of spans and counters are those of vLLM's model runner for hpu (vllm 0.6.6, `HabanaProfilerCounterHelper`). The
package that writes the file is not on the package index: that the list of events has no closing bracket, and the
numbers of the threads, are assumptions.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.trace.reader import read_trace

_PID, _COUNTERS, _ENGINE = 7, 1, 3
# Phase, padded and real batch size, padded and real sequence length, microseconds.
_STEPS = (("prompt", 2, 1, 256, 200, 9000.0), ("decode", 8, 5, 1024, 800, 3000.0), ("decode", 8, 4, 1024, 801, 3000.0))


def _events() -> Iterator[dict[str, Any]]:
    """Yield the events as the engine writes them: a span when it ends, the counters of a step after it."""
    start = 1.7e15
    for iteration, (phase, padded, batch, padded_length, length, duration) in enumerate(_STEPS):
        suffix = f"{phase}_bs{padded}_seq{padded_length}"
        parts = (
            ("prepare_input_tensors", 10.0, 500.0),
            (f"model_{suffix}_graphsT", 600.0, duration - 1000),
            (f"compute_logits_{suffix}", duration - 390, 100.0),
            (f"sample_{suffix}", duration - 280, 200.0),
            (phase, 0.0, duration),
        )
        for name, offset, each in parts:
            yield {
                "pid": _PID,
                "tid": _ENGINE,
                "ph": "X",
                "name": name,
                "ts": start + offset,
                "dur": each,
                "args": None,
            }
        counters = {
            f"{phase}_bucket_batch_size": padded,
            f"{phase}_batch_size": batch,
            f"{phase}_batch_token_utilization": batch * length / (padded * padded_length),
            "engine_iteration": iteration,
        }
        yield {"pid": _PID, "tid": _COUNTERS, "ph": "C", "name": "utils", "ts": start, "args": counters}
        start += duration + 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Compressed trace of a server that is still running."""
    path = tmp_path / "server_events_1.json.gz"
    path.write_bytes(gzip.compress(("[" + "".join(f"{json.dumps(event)}," for event in _events())).encode()))
    return path


def test_spans_of_the_engine_are_its_operators(path: Path) -> None:
    trace = read_trace(path)

    times = {operator.name: operator.self_time for operator in trace.operators}
    assert times["model_prompt_bs2_seq256_graphsT"] == 8000
    assert times["prompt"] == 200
    assert trace.spans == []


def test_steps_of_torch_keep_their_spans(tmp_path: Path) -> None:
    """Annotations around operators are not operators."""
    path = tmp_path / "a.pt.trace.json"
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "ts": 0, "dur": 9},
        {"ph": "X", "cat": "user_annotation", "name": "mine", "ts": 1, "dur": 5},
    ]
    path.write_text(json.dumps({"traceEvents": events}))

    trace = read_trace(path)

    assert trace.operators == []
    assert [span.name for span in trace.spans] == ["mine"]
