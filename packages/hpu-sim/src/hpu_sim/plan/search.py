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
    too_large: tuple[int, int] | None = None

    def plan(size: int) -> tuple[int, Recording, int]:
        found = record(dataclasses.replace(options, batch_size=size))
        return size, found, memory_plan(found).peak_bytes

    best, before = plan(1), (0, 0)
    if best[2] > limit:
        return None
    for _ in range(_MAX_PLANS):
        if too_large is not None:
            size = int(best[0] + (limit - best[2]) * (too_large[0] - best[0]) / max(too_large[1] - best[2], 1))
            size = min(max(size, best[0] + 1), too_large[0] - 1)
        elif before[0] and best[2] > before[1]:
            size = int(best[0] + (limit - best[2]) * (best[0] - before[0]) / (best[2] - before[1]))
            size = min(max(size, best[0] + 1), best[0] * _MAX_GROWTH)
        else:
            size = best[0] * (_MAX_GROWTH if before[0] else 2)
        if size <= best[0]:
            break
        this = plan(size)
        if this[2] <= limit:
            before, best = (best[0], best[2]), this
        else:
            too_large = size, this[2]
    return dataclasses.replace(options, batch_size=best[0]), best[1]
