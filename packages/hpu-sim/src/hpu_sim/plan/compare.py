"""Plans from recordings: each model is applied to each generation."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.memory import advice, memory_plan
from hpu_sim.plan.modules import rows
from hpu_sim.plan.schema import RatePlan, StrategyPlan
from hpu_sim.prediction.hardware import hardware, usable_memory, verdict, with_reserve
from hpu_sim.prediction.recording import Program
from hpu_sim.prediction.step import Step, summarize
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.prediction.recording import HostRead, Recording

#: Name of the optimizer's cost.
OPTIMIZER: Final = "optimizer"
# Reads of the host whose cost is predicted.
_MAX_READS: Final = 5
# A backward pass has the products of the forward pass twice.
_PASSES: Final = 3
_MIN_SEQUENCE: Final = 8
_SAMPLES: Final = 1_000_000


def clock_of(recording: Recording, generation: str) -> Clock:
    """Return the clock of a recording on a generation.

    Raises:
        PlanError: If the program computes in float8, which the generation does not have.
    """
    computes_float8 = any(each.dtype == "float8" for each in recording.steady.operations)
    if computes_float8 and "float8" not in hardware(generation).peaks:
        raise PlanError(f"the program computes in float8, which {generation} does not have: plan a newer one")
    return Clock(recording, generation)


def strategy_plan(clock: Clock, prices: Mapping[str, float] | None = None) -> StrategyPlan:
    """Return the plan of a recording on a generation, with prices of a card hour by generation ("" for all others)."""
    recording, generation = clock.recording, clock.generation
    found, memory, usable = _step(clock), memory_plan(recording), usable_memory(generation)
    program = {each.name: getattr(recording, each.name) for each in dataclasses.fields(Program)}
    program |= {"host_reads": _host_reads(clock), "notes": [*_notes(recording), *recording.notes]}
    return StrategyPlan(
        **program,
        generation=generation,
        inputs=clock.step.inputs,
        usable_bytes=usable,
        verdict=verdict(memory.peak_bytes, usable),
        with_reserve=with_reserve(memory.peak_bytes),
        memory=memory,
        step=found,
        rate=_rate(recording, generation, found, prices or {}),
        advice=advice(recording, memory, usable),
    )


def _step(clock: Clock) -> Step:
    """Return the predicted step with the line of the program that runs each module."""
    lines = clock.recording.lines
    rows_of = rows({*lines, *(each.module for each in clock.step.operations)})

    def name_of(phase: str, module: str) -> str:
        return OPTIMIZER if phase == "optimizer" else rows_of.get(module, module)

    return summarize(clock, name_of, {rows_of[module]: line for module, line in reversed(lines.items())})


def _host_reads(clock: Clock) -> list[HostRead]:
    """Return the lines that read values with what the first of them cost."""
    found = list(clock.recording.host_reads)
    for key, each in enumerate(found[:_MAX_READS]):
        without = dataclasses.replace(clock.recording, steps=[clock.step.without_read(key)])
        seconds = Clock(without, clock.generation).timeline.seconds
        found[key] = dataclasses.replace(each, seconds=max(0.0, clock.timeline.seconds - seconds))
    return found


def _rate(recording: Recording, generation: str, found: Step, prices: Mapping[str, float]) -> RatePlan:
    """Return the speed of a recorded step."""
    ends = found.slow_seconds, found.fast_seconds
    batches = recording.accumulate * (recording.replicas or recording.world_size)
    samples, tokens = batches * recording.batch_size, batches * _tokens(recording)
    price = prices.get(generation, prices.get("", 0.0))
    per_hour = recording.world_size * price

    def per_second(number: float) -> tuple[float, float]:
        slow, fast = (number / seconds if seconds else 0.0 for seconds in ends)
        return slow, fast

    most, least = (_SAMPLES / samples * seconds / 3600 * per_hour if samples else 0.0 for seconds in ends)
    return RatePlan(
        samples=samples,
        tokens=tokens,
        samples_per_second=per_second(samples),
        tokens_per_second=per_second(tokens),
        mfu=per_second(_seconds_at_peak(recording, generation)),
        price=price,
        cost=(most, least),
    )


def _tokens(recording: Recording) -> int:
    """Return the tokens of a batch, whose parts ranks may share: those of the first matrix of integers."""
    for dtype, shape, _ in recording.steady.inputs:
        if dtype.startswith("int") and len(shape) == 2 and shape[1] >= _MIN_SEQUENCE:  # noqa: PLR2004 - a matrix
            return int(shape[0] * shape[1]) * recording.sequence_parts
    return 0


def _seconds_at_peak(recording: Recording, generation: str) -> float:
    """Return the time of the model's operations in a step at the stated peaks of their dtypes."""
    device, operations = hardware(generation), recording.steady.operations
    seconds = sum(each.flops / device.peak(each.dtype) for each in operations)
    forward = sum(each.flops for each in operations if each.phase == "forward")
    # Recomputed activations are work of the step and not of the model.
    return seconds * min(1.0, _PASSES * forward / (recording.steady.flops or 1))


def _notes(recording: Recording) -> tuple[str, ...]:
    shapes = {step.inputs for step in recording.steps}
    notes = ["The plan is for the batch that was drawn. Other shapes need other memory, time and graphs."]
    if len(shapes) > 1:
        notes.append("The drawn batches have different shapes: each is another graph.")
    if not recording.lazy and not recording.compiled:
        notes.append("Eager mode compiles operators one by one; the time of that is not predicted.")
    notes.append("The time of loggers and of what callbacks do on the host is left out.")
    return tuple(notes)
