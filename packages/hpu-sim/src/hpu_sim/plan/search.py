"""Search for what fits: the largest batch, and the changes that need less memory. Each candidate is planned again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from hpu_sim.plan import zero
from hpu_sim.plan.hardware import usable_memory
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.schema import Advice
from hpu_sim.report.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.recording import Recording
    from hpu_sim.plan.session import Options

# Corrections of the linear estimate of the largest batch.
_MAX_CORRECTIONS: Final = 4


def batch_size(recording: Recording) -> int:
    """Return the samples of a rank's batch; 0 if it is not known."""
    shapes = [shape for _, shape, _ in recording.steady.inputs if shape]
    return shapes[0][0] if shapes else 0


def find_batch(
    record: Callable[[Options], Recording], options: Options, generation: str
) -> tuple[Options, Recording] | None:
    """Return options and recording of the largest batch that fits; None if no batch does.

    Memory grows linearly with the batch, so two plans give an estimate, and further ones correct it.

    Args:
        record: Function that plans the program.
        options: What the user asks for.
        generation: Generation of the devices.
    """
    usable = usable_memory(generation)

    def plan(size: int) -> tuple[Recording, int]:
        found = record(dataclasses.replace(options, batch_size=size))
        return found, memory_plan(found).peak_bytes

    first, first_peak = plan(1)
    if first_peak > usable:
        return None
    _, second_peak = plan(2)
    best, size = (1, first), 2
    slope = max(second_peak - first_peak, 1)
    estimate = 1 + (usable - first_peak) // slope
    for _ in range(_MAX_CORRECTIONS):
        size = max(int(estimate), 1)
        if size <= best[0]:
            break
        candidate, peak = plan(size)
        if peak <= usable:
            best = size, candidate
            estimate = size + (usable - peak) // slope
        else:
            estimate = size - max(-(-(peak - usable) // slope), 1)
    return dataclasses.replace(options, batch_size=best[0]), best[1]


def advise(
    record: Callable[[Options], Recording], options: Options, recording: Recording, generation: str
) -> tuple[Advice, ...]:
    """Return changes that need less memory, cheapest first.

    Args:
        record: Function that plans the program.
        options: What the user asks for.
        recording: The program's recording, which does not fit.
        generation: Generation of the devices.
    """
    usable = usable_memory(generation)
    return tuple(
        Advice(title, peak, peak <= usable, cost)
        for title, changed, cost in _candidates(record, options, recording)
        if (peak := memory_plan(changed).peak_bytes) < memory_plan(recording).peak_bytes
    )


def _candidates(
    record: Callable[[Options], Recording], options: Options, recording: Recording
) -> Iterator[tuple[str, Recording, str]]:
    """Yield changes with their recording and cost."""
    replicated = recording.strategy in {"ddp", "hpu_parallel", "hpu_ddp", "hpu_single"}
    if replicated and recording.world_size > 1:
        for name in ("deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3"):
            changed = zero.apply(recording, name)
            sent = sum(each.bytes for each in changed.steady.collectives)
            yield f'strategy="{name}"', changed, f"{format_bytes(sent)} of collectives per step and rank"
    if recording.precision.startswith(("32", "bf16-mixed")):
        changed = record(dataclasses.replace(options, precision="bf16-true"))
        yield 'precision="bf16-true"', changed, "parameters and optimizer have less precision"
    changed = record(dataclasses.replace(options, checkpoint=True))
    more = changed.steady.flops / max(recording.steady.flops, 1) - 1
    if more > 0:
        yield "activation checkpointing of repeated blocks", changed, f"{more:.0%} more floating-point operations"
    size = batch_size(recording)
    if size > 1:
        changed = record(dataclasses.replace(options, batch_size=size // 2))
        yield f"batch of {size // 2} per card instead of {size}", changed, "more steps, or gradient accumulation"
    if replicated:
        changed = zero.apply(recording, "deepspeed_stage_3_offload")
        yield 'strategy="deepspeed_stage_3_offload"', changed, "the optimizer runs on the host"
