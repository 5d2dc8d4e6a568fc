"""Choice of the steps to read of a file that is too large to read as a whole."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_profiler.trace.intervals import Interval

__all__ = ["StepWindow", "step_window"]

_CHUNK_SIZE: Final = 1 << 24
#: Largest distance in bytes from a step's name to its times.
_OVERLAP: Final = 1024
_STEP_RE: Final = re.compile(rb'"ProfilerStep#\d+"[^{}]{0,400}?"ts":\s*([\d.]+)[^{}]{0,200}?"dur":\s*([\d.]+)')


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Time range to read.

    Attributes:
        interval: Start and end time.
        skipped_steps: Number of steps after the end.
    """

    interval: Interval = (-math.inf, math.inf)
    skipped_steps: int = 0


def step_window(file: IO[bytes], max_bytes: int) -> StepWindow:
    """Return the time range of the first steps that fit into a number of bytes.

    The text is searched for step annotations without parsing it. Each step is taken to need an equal part of the file.

    Args:
        file: Trace file.
        max_bytes: Number of bytes to read at most.

    Returns:
        An infinite range if the file is small enough or has no steps.
    """
    size = 0
    steps: set[Interval] = set()
    tail = b""
    while chunk := file.read(_CHUNK_SIZE):
        size += len(chunk)
        # A small file needs no search.
        if size == len(chunk) <= max_bytes and len(chunk) < _CHUNK_SIZE:
            return StepWindow()
        text = tail + chunk
        for start, duration in _STEP_RE.findall(text):
            steps.add((float(start), float(start) + float(duration)))
        tail = text[-_OVERLAP:]
    if size <= max_bytes or not steps:
        return StepWindow()
    ordered = sorted(steps)
    kept = max(len(ordered) * max_bytes // size, 1)
    # Events that start a little before the first step belong to its data loading.
    return StepWindow((-math.inf, ordered[kept - 1][1]), len(ordered) - kept)
