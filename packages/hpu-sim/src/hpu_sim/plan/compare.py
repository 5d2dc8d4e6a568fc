"""Plans from recordings: each model is applied to each generation."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hpu_sim.plan import costs
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.module_names import user_name
from hpu_sim.plan.rates import batch_size, rate_plan
from hpu_sim.plan.schema import (
    CollectivePlan,
    InputPlan,
    ModulePlan,
    RankPlan,
    SpanPlan,
    StepMemory,
    StrategyPlan,
    TimePlan,
)
from hpu_sim.prediction import fusion, reserve
from hpu_sim.prediction.hardware import hardware, usable_memory
from hpu_sim.prediction.ranges import step_range
from hpu_sim.prediction.time_model import mode_of, predict, products_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpu_sim.prediction.recording import MemorySample, Recording, StepRecording
    from hpu_sim.prediction.time_model import Span, Timeline

#: Maximum number of modules in a plan, of parts of its timeline, and of points of a step's memory.
MAX_MODULES: Final = 10
MAX_SPANS: Final = 250
MAX_POINTS: Final = 120
# Parts of the timeline whose shares differ by less are one.
_SAME_SHARE: Final = 0.05


def strategy_plan(
    recording: Recording, generation: str, planned_samples: int = 0, loader_rate: float = 0.0
) -> StrategyPlan:
    """Return the plan of a recording on a generation.

    Args:
        recording: Recording.
        generation: Generation of the devices.
        planned_samples: Samples to train for; 0 if none are given.
        loader_rate: Samples per second and card of a loader beside the step, instead of this host's time to fetch
            batches; 0 if none is given.

    Raises:
        PlanError: If the program computes in float8, which the generation does not have.
    """
    if loader_rate:
        steps = [dataclasses.replace(each, loader_seconds=0.0, worker_seconds=0.0) for each in recording.steps]
        recording = dataclasses.replace(recording, steps=steps)
    step = recording.steady
    computes_float8 = any(each.dtype == "float8" for each in step.operations)
    if computes_float8 and "float8" not in hardware(generation, "slow").matrix_flops:
        raise PlanError(f"the program computes in float8, which {generation} does not have: plan a newer one")
    mode = mode_of(recording)
    found = step_range(step, generation, recording.devices, mode)
    timeline = predict(step, generation, recording.devices, mode).scaled(found.middle)
    fed = recording.accumulate * batch_size(recording) / loader_rate if loader_rate else 0.0
    seconds = found.at_least(fed)
    memory = memory_plan(recording)
    usable = usable_memory(generation)
    graphs = fusion.count_graphs(step, is_lazy=recording.lazy) if recording.lazy or recording.compiled else None
    return StrategyPlan(
        strategy=recording.strategy,
        generation=generation,
        devices=recording.devices,
        nodes=recording.world_size // recording.devices,
        rank=recording.rank,
        precision=recording.precision,
        lazy=recording.lazy,
        parameters=recording.parameters,
        trainable=recording.trainable,
        flops=step.flops,
        graphs=graphs,
        inputs=tuple(InputPlan(*each) for each in step.inputs),
        usable_bytes=usable,
        verdict=reserve.verdict(memory.peak_bytes, usable),
        reserves=reserve.reserves(memory.peak_bytes),
        memory=memory,
        collectives=_collectives(step, recording.devices),
        time=TimePlan(
            seconds.low,
            seconds.middle,
            seconds.high,
            _bounds(timeline),
            costs.width_shares(seconds),
            _compilation(graphs, generation),
            products_seconds(step, hardware(generation, "middle")),
        ),
        spans=tuple(_lanes(timeline)),
        modules=_modules(timeline, step),
        host_reads=tuple(recording.host_reads),
        advice=(),
        notes=(*_notes(recording), *recording.notes),
        ranks=(RankPlan(recording.rank, memory.peak_bytes, step.flops, seconds.middle),),
        accumulate=recording.accumulate,
        rate=rate_plan(recording, generation, seconds, planned_samples),
        costs=costs.costs(recording, timeline, generation),
        history=_history(recording),
        loader_seconds=step.loader_seconds,
        worker_seconds=step.worker_seconds,
        fed_seconds=fed,
    )


def _history(recording: Recording) -> tuple[StepMemory, ...]:
    """Return the memory from the setup to the last step, thinned to the highest of equal parts."""
    named = [("setup", recording.setup.samples)]
    for index, step in enumerate(recording.steps, 1):
        # What follows the step is no part of it.
        named.append((f"step {index}", [each for each in step.samples if each.phase != "setup"]))
    return tuple(StepMemory(name, _thin(samples)) for name, samples in named if samples)


def _thin(samples: Sequence[MemorySample]) -> tuple[MemorySample, ...]:
    size = max(-(-len(samples) // MAX_POINTS), 1)
    parts = (samples[start : start + size] for start in range(0, len(samples), size))
    return tuple(max(part, key=lambda sample: sum(sample.by_category)) for part in parts)


def representatives(recording: Recording) -> tuple[int, ...]:
    """Return the last rank of each group of collectives if it has smaller shards than the recorded one.

    Ranks with shards of equal sizes have equal plans.
    """
    if not recording.is_uneven:
        return ()
    groups = {each.ranks for step in recording.steps for each in step.collectives}
    return tuple(sorted({group[-1] for group in groups} - {recording.rank}))


def _compilation(graphs: int | None, generation: str) -> tuple[float, float]:
    fast, slow = hardware(generation, "fast"), hardware(generation, "slow")
    return (graphs or 0) * fast.compilation_seconds, (graphs or 0) * slow.compilation_seconds


def _collectives(step: StepRecording, devices: int) -> tuple[CollectivePlan, ...]:
    groups: dict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    for each in step.collectives:
        groups[each.name, each.phase, each.ranks].append(each.bytes)
    return tuple(
        CollectivePlan(name, phase, len(sizes), sum(sizes), len(ranks), len({rank // devices for rank in ranks}))
        for (name, phase, ranks), sizes in groups.items()
    )


def _bounds(timeline: Timeline) -> dict[str, float]:
    total = timeline.seconds or 1.0
    shares: defaultdict[str, float] = defaultdict(float)
    for span in timeline.spans:
        if span.stream == "compute":
            shares[span.bound] += span.seconds / total
    shares["network"] += timeline.exposed / total
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return {name: round(share, 4) for name, share in ordered if share > 0}


def _lanes(timeline: Timeline) -> Iterator[SpanPlan]:
    """Yield the timeline of each cause: equal parts of the step, of which it limits a share.

    Neighbours with about the same share are one part.
    """
    width = (timeline.seconds or 1.0) / MAX_SPANS
    lanes: defaultdict[tuple[str, str], dict[int, list[tuple[float, Span]]]] = defaultdict(dict)
    for span in timeline.spans:
        first, last = int(span.start / width), min(int(span.end / width), MAX_SPANS - 1)
        for index in range(first, last + 1):
            seconds = min(span.end, (index + 1) * width) - max(span.start, index * width)
            if seconds > 0:
                lanes[span.stream, span.bound].setdefault(index, []).append((seconds, span))
    for (stream, bound), parts in lanes.items():
        before: SpanPlan | None = None
        for index, overlaps in sorted(parts.items()):
            share = min(sum(seconds for seconds, _ in overlaps) / width, 1.0)
            _, longest = max(overlaps, key=lambda overlap: overlap[0])
            start, end, name = index * width, (index + 1) * width, user_name(longest.module)
            if (
                before is not None
                and before.phase == longest.phase
                and abs(before.share - share) < _SAME_SHARE
                and index * width - before.end < width / 2
            ):
                before = replace(before, end=end)
                continue
            if before is not None:
                yield before
            before = SpanPlan(stream, longest.name, longest.phase, bound, start, end, round(share, 3), name)
        if before is not None:
            yield before


def _modules(timeline: Timeline, step: StepRecording) -> tuple[ModulePlan, ...]:
    spans = (span for span in timeline.spans if span.stream == "compute" and span.module)
    found = costs.by_name((user_name(span.module), span) for span in spans)
    flops: Counter[str] = Counter()
    for operation in step.operations:
        flops[user_name(operation.module)] += operation.flops
    return tuple(
        ModulePlan(name, flops[name], seconds, bound)
        for name, (seconds, bound) in sorted(found.items(), key=lambda item: -item[1][0])[:MAX_MODULES]
    )


def _notes(recording: Recording) -> tuple[str, ...]:
    shapes = {step.inputs for step in recording.steps}
    notes = ["The plan is for the batch that was drawn. Other shapes need other memory, time and graphs."]
    if len(shapes) > 1:
        notes.append("The drawn batches have different shapes: each is another graph.")
    if not recording.lazy and not recording.compiled:
        notes.append("Eager mode compiles operators one by one; the time of that is not predicted.")
    notes.append("The time of loggers and of what callbacks do on the host is left out.")
    return tuple(notes)
