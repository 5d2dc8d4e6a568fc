"""Plans from recordings: each model is applied to each generation."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hpu_sim.common.encoding import SCHEMA_VERSION
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.schema import (
    CollectivePlan,
    InputPlan,
    ModulePlan,
    Plan,
    RankPlan,
    SpanPlan,
    StrategyPlan,
    TimePlan,
)
from hpu_sim.prediction import fusion
from hpu_sim.prediction.hardware import hardware, usable_memory
from hpu_sim.prediction.recording import CATEGORIES, PREDICTED
from hpu_sim.prediction.time_model import predict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_sim.prediction.recording import Recording, StepRecording
    from hpu_sim.prediction.time_model import Span, Timeline

#: Maximum number of modules in a plan, and of parts of its timeline.
MAX_MODULES: Final = 10
MAX_SPANS: Final = 400


def make_plan(command: Sequence[str], strategies: Sequence[StrategyPlan]) -> Plan:
    """Return a plan with its heading."""
    return Plan(
        schema_version=SCHEMA_VERSION,
        predicted=True,
        disclaimer=PREDICTED,
        command=tuple(command),
        memory_categories=CATEGORIES,
        strategies=tuple(strategies),
    )


def strategy_plan(recording: Recording, generation: str) -> StrategyPlan:
    """Return the plan of a recording on a generation."""
    step = recording.steady
    fuse = recording.lazy or recording.compiled
    slow = predict(step, generation, recording.devices, estimate="slow", fuse=fuse)
    fast = predict(step, generation, recording.devices, estimate="fast", fuse=fuse)
    memory = memory_plan(recording)
    usable = usable_memory(generation)
    graphs = _graphs(step, recording) if fuse else None
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
        fits=memory.peak_bytes <= usable,
        memory=memory,
        collectives=_collectives(step, recording.devices),
        time=TimePlan(fast.seconds, slow.seconds, _bounds(slow), _compilation(graphs, generation)),
        spans=tuple(_merge(slow.spans, slow.seconds / MAX_SPANS)),
        modules=_modules(slow, step),
        host_reads=tuple(recording.host_reads),
        advice=(),
        notes=(*_notes(recording), *recording.notes),
        ranks=(RankPlan(recording.rank, memory.peak_bytes, step.flops, slow.seconds),),
    )


def representatives(recording: Recording) -> tuple[int, ...]:
    """Return the last rank of each group of collectives if it has smaller shards than the recorded one.

    Ranks with shards of equal sizes have equal plans.
    """
    if not recording.is_uneven:
        return ()
    groups = {each.ranks for step in recording.steps for each in step.collectives}
    return tuple(sorted({group[-1] for group in groups} - {recording.rank}))


def _graphs(step: StepRecording, recording: Recording) -> int:
    """Return the number of different graphs of a step."""
    return fusion.count_graphs(step, is_lazy=recording.lazy)


def _compilation(graphs: int | None, generation: str) -> tuple[float, float]:
    if graphs is None:
        return 0.0, 0.0
    return (
        graphs * hardware(generation, "fast").compilation_seconds,
        graphs * hardware(generation, "slow").compilation_seconds,
    )


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


def _merge(spans: Iterable[Span], shortest: float) -> Iterable[SpanPlan]:
    """Yield the timeline with spans that are too short to see merged into their predecessor."""
    last: dict[str, SpanPlan] = {}
    for span in spans:
        before = last.get(span.stream)
        if (
            before is not None
            and before.phase == span.phase
            and (before.bound == span.bound or span.seconds < shortest)
            and span.start - before.end <= shortest
        ):
            last[span.stream] = SpanPlan(before.stream, before.name, before.phase, before.bound, before.start, span.end)
            continue
        if before is not None:
            yield before
        last[span.stream] = SpanPlan(span.stream, span.name, span.phase, span.bound, span.start, span.end)
    yield from last.values()


def _modules(timeline: Timeline, step: StepRecording) -> tuple[ModulePlan, ...]:
    seconds: defaultdict[str, float] = defaultdict(float)
    bounds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for span in timeline.spans:
        if span.stream == "compute" and span.module:
            seconds[span.module] += span.seconds
            bounds[span.module][span.bound] += span.seconds
    flops: Counter[str] = Counter()
    for operation in step.operations:
        flops[operation.module] += operation.flops
    return tuple(
        ModulePlan(name, flops[name], seconds[name], max(bounds[name], key=bounds[name].__getitem__))
        for name in sorted(seconds, key=seconds.__getitem__, reverse=True)[:MAX_MODULES]
    )


def _notes(recording: Recording) -> tuple[str, ...]:
    shapes = {step.inputs for step in recording.steps}
    notes = ["The plan is for the batch that was drawn. Other shapes need other memory, time and graphs."]
    if len(shapes) > 1:
        notes.append("The drawn batches have different shapes: each is another graph.")
    if not recording.lazy and not recording.compiled:
        notes.append("Eager mode compiles operators one by one; the time of that is not predicted.")
    notes.append("Memory is that of tensors. Workspaces of compiled graphs and buffers of HCCL come on top.")
    return tuple(notes)
