"""Search for the largest batch that fits. Each candidate is planned again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from hpu_sim.plan.memory import memory_plan
from hpu_sim.prediction.hardware import fitting_bytes, usable_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.plan.options import Options
    from hpu_sim.prediction.recording import Recording

# Plans in search of the largest batch, beside the first one, and the factor by which a batch grows at most.
_MAX_PLANS: Final = 8
_MAX_GROWTH: Final = 64


def find_batch(
    record: Callable[[Options], Recording], options: Options, generation: str
) -> tuple[Options, Recording] | None:
    """Return options and recording of the largest batch that fits with the whole reserve; None if no batch does.

    Memory grows about linearly with the batch, so two plans give an estimate of the next one. It may be flat for small
    batches, which a copy of the parameters hides: what fits so far is at most multiplied.
    """
    limit = fitting_bytes(usable_memory(generation))

    def plan(size: int) -> tuple[int, int, Recording]:
        found = record(dataclasses.replace(options, batch_size=size))
        return size, memory_plan(found).peak_bytes, found

    size, peak, best = plan(1)
    if peak > limit:
        return None
    # Size and peak of the next smaller one that was planned, then of the smallest that is too large.
    before: tuple[int, int] | None = None
    too_large: tuple[int, int] | None = None
    for _ in range(_MAX_PLANS):
        tried = most = too_large[0] - 1 if too_large else size * (_MAX_GROWTH if before else 2)
        if other := too_large or before:
            slope = (other[1] - peak) / (other[0] - size)
            tried = int(size + (limit - peak) / slope) if slope > 0 else most
        tried = min(max(tried, size + 1), most)
        if tried == size:
            break
        _, found, recording = plan(tried)
        if found <= limit:
            before, size, peak, best = (size, peak), tried, found, recording
        else:
            too_large = tried, found
    return dataclasses.replace(options, batch_size=size), best
