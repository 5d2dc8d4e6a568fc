"""Choice of the steps to read of a large file."""

import io
import json
import math

import pytest

from hpu_profiler.trace import step_window as module
from hpu_profiler.trace.step_window import StepWindow, step_window

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _file(builder: TraceBuilder, steps: int) -> io.BytesIO:
    return io.BytesIO(json.dumps([builder.step(index, 10 * index, 10) for index in range(steps)]).encode())


def test_small_file_is_read_as_a_whole(builder: TraceBuilder) -> None:
    assert step_window(_file(builder, 4), 10_000) == StepWindow()


def test_file_without_steps_is_read_as_a_whole() -> None:
    assert step_window(io.BytesIO(b"[" + b" " * 100 + b"]"), 10) == StepWindow()


@pytest.mark.parametrize("chunk_size", [7, 64, 1 << 20])
def test_steps_that_fit_are_chosen(chunk_size: int, builder: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may cross the end of a chunk."""
    monkeypatch.setattr(module, "_CHUNK_SIZE", chunk_size)
    size = len(_file(builder, 10).getvalue())

    assert step_window(_file(builder, 10), size * 35 // 100) == StepWindow((-math.inf, 30), 7)


def test_at_least_one_step_is_read(builder: TraceBuilder) -> None:
    assert step_window(_file(builder, 10), 1) == StepWindow((-math.inf, 10), 9)
