"""Document of a plan: what a terminal and a page show of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from hpu_sim.common.document import Document, Heading, Part, Table, Text
from hpu_sim.common.formatting import (
    format_bounds,
    format_bytes,
    format_int,
    format_range,
    format_rates,
    format_seconds,
    format_shares,
    show_location,
)
from hpu_sim.prediction.hardware import judged_ratios
from hpu_sim.prediction.summary import TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpu_sim.plan.schema import Plan, StrategyPlan

_VERDICTS: Final = {"fits": "yes", "tight": "tight", "no": "NO"}
_GOOD: Final = (("yes",), ("tight", "NO"))
_COSTS: Final = ("cost", "time", "limited by", "FLOP", "bytes", "operators", "mostly", "line")
_MEMORY: Final = ("module", "modules", "bytes", "of which")
_COLLECTIVES: Final = ("collective", "part of the step", "calls", "bytes of the rank", "ranks", "boxes")
# Costs in a terminal.
_BRIEF_COSTS: Final = 3


def document(plan: Plan) -> Document:
    """Return the document of a plan."""
    first = plan.strategies[0]
    on = f"{_boxes(first)}{first.devices} x Gaudi ({plan.disclaimer})"
    return Document(
        title="Gaudi plan",
        badge=plan.disclaimer,
        command=shlex.join(plan.command),
        heading=f"hpu-sim plan: {' '.join(plan.command)} on {on}",
        parts=list(_parts(plan)),
    )


def _parts(plan: Plan) -> Iterator[Part]:
    is_single = len(plan.strategies) == 1
    yield _table(plan)
    for each in plan.strategies:
        yield Heading(f"{each.strategy} on {each.generation}{each.settings and f', {each.settings}'}")
        yield Text(_limits(each))
        if each.advice:
            yield Text(each.advice)
        yield from (Text(line, is_brief=is_single) for line in _sentences(each))
        yield from _tables(each, is_brief=is_single)
    notes = dict.fromkeys([TRUST, *(note for each in plan.strategies for note in each.notes)])
    if not is_single:
        yield Text(_ratios())
    yield from (Text(f"note: {note}", "faint") for note in notes)


def _table(plan: Plan) -> Table:
    """Return the table of all plans, with every answer that was asked for."""
    plans = plan.strategies
    is_single, has_hours = len(plans) == 1, any(map(_hours, plans))
    columns: dict[str, Callable[[StrategyPlan], str]] = {
        "strategy": lambda each: each.strategy,
        "cards": lambda each: f"{_boxes(each)}{each.devices} {each.generation}",
        "batch": lambda each: str(each.batch_size or "-"),
        "peak memory": lambda each: format_bytes(each.memory.peak_bytes),
        "fits": lambda each: _VERDICTS[each.verdict],
        "step": lambda each: (
            f"{format_seconds(each.step.seconds)} ({format_range(each.step.fast_seconds, each.step.slow_seconds)})"
        ),
        "samples/s": lambda each: format_rates(each.rate.samples_per_second) if each.rate.samples else "-",
        "MFU": lambda each: format_shares(each.rate.mfu) if each.rate.mfu[0] else "-",
        "changed": lambda each: each.settings,
        "time per sample": lambda each: "" if is_single else _relative(each),
        "tokens/s": lambda each: format_rates(each.rate.tokens_per_second) if each.rate.tokens else "",
        "time": _hours,
        "card hours": lambda each: format_rates(each.rate.card_hours[::-1]) if _hours(each) else "",
        "cost" if has_hours else "cost of 10^6 samples": lambda each: (
            format_rates(each.rate.cost[::-1]) if each.rate.price else ""
        ),
    }
    cells = {name: list(map(cell, plans)) for name, cell in columns.items()}
    shown = {name: found for name, found in cells.items() if any(found)}
    return Table(tuple(shown), list(zip(*shown.values(), strict=True)), good=_GOOD)


def _boxes(each: StrategyPlan) -> str:
    return f"{each.nodes} x " if each.nodes > 1 else ""


def _relative(each: StrategyPlan) -> str:
    return "1" if each.relative is None else f"{each.relative:.2f}"


def _ratios() -> str:
    """Return how often a ratio such as that of two rows was right."""
    known = judged_ratios()
    count, inside, ranked = (int(known[name]) for name in ("count", "inside", "ranked"))
    return (
        f"time per sample: of {count} published ratios, {inside} were within a factor of {known['factor']:g} of the "
        f"predicted one, and {ranked} had the same of the two as the faster one (Gaudi 3 and 2, cards, modes, batches)"
    )


def _hours(each: StrategyPlan) -> str:
    slow, fast = each.rate.hours
    return format_range(fast * 3600, slow * 3600) if each.rate.planned_samples and each.rate.samples else ""


def _limits(each: StrategyPlan) -> str:
    """Return what limits the step, and what it communicates."""
    calls = sum(group.count for group in each.collectives)
    size = sum(group.bytes for group in each.collectives)
    word = "collective" if calls == 1 else "collectives"
    collectives = f"{format_int(calls)} {word} ({format_bytes(size)})" if calls else "no collective"
    return f"{each.strategy} on {each.generation}: limited by {format_bounds(each.step.bounds)}; {collectives} per step"


def _sentences(each: StrategyPlan) -> Iterator[str]:
    """Yield what the table of all plans does not say."""
    rate = each.rate
    if rate.samples:
        batches = f"{each.accumulate} batches" if each.accumulate > 1 else "one batch"
        yield f"{format_int(rate.samples)} samples per step, {batches} per rank"
    batch = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in each.inputs) or "not known"
    yield (
        f"{format_int(each.parameters)} parameters, {format_int(each.trainable)} trained, precision {each.precision}, "
        f"{'lazy' if each.lazy else 'eager'} mode, rank {each.rank}; batch per rank: {batch}"
    )
    if each.fed_seconds:
        limits = "limits the step" if each.fed_seconds >= each.step.seconds else "is faster than the step"
        yield f"data: a loader of the given rate takes {format_seconds(each.fed_seconds)} per step, and {limits}"
    graphs = "one per operator and shape (eager)"
    if each.step.graphs is not None:
        first = format_range(*each.step.first_steps_seconds)
        graphs = f"{each.step.graphs}; the first steps of published runs took {first} longer than later ones"
    yield f"{each.step.flops:.4g} floating-point operations per step and rank; graphs to compile: {graphs}"
    peak = each.memory.peak_bytes
    parts = ", ".join(f"{part.name} {_between(part.low, part.high)}" for part in each.reserves)
    low, high = (peak + sum(ends) for ends in zip(*((part.low, part.high) for part in each.reserves), strict=True))
    yield (
        f"memory with what tensors do not show: {_between(low, high)} of {format_bytes(each.usable_bytes)} that a "
        f"program can use ({parts})"
    )
    at_peak = {name: size for name, size in each.memory.at_peak.items() if size}
    yield f"memory at the peak ({each.memory.peak_phase}): {_sizes(at_peak)}"
    for read in each.host_reads:
        assumed = f" (the plan assumed {read.assumed})" if read.assumed else ""
        yield f"{show_location(read.location)} reads a value {read.count} times per step: `{read.source}`{assumed}"


def _sizes(named: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in named.items())


def _between(low: int, high: int) -> str:
    return f"{format_bytes(low)} to {format_bytes(high)}"


def _tables(each: StrategyPlan, *, is_brief: bool) -> Iterator[Table]:
    rows = [
        (
            cost.name,
            f"{format_seconds(cost.seconds)}, {cost.seconds / (each.step.seconds or 1.0):.0%}",
            cost.bound,
            f"{cost.flops:.3g}" if cost.flops else "",
            format_bytes(cost.bytes) if cost.bytes else "",
            format_int(cost.operators) if cost.operators else "",
            cost.mostly,
            show_location(cost.location),
        )
        for cost in each.step.costs
    ]
    title, words = "largest costs of a step", frozenset(_COSTS[6:])
    if is_brief:
        yield Table(_COSTS, rows[:_BRIEF_COSTS], title, words)
    if not is_brief or len(rows) > _BRIEF_COSTS:
        yield Table(_COSTS, rows, f"all {title}" if is_brief else title, words, is_brief=False)
    modules = [
        (row.name, format_int(row.count), format_bytes(row.bytes), _sizes(row.by_category))
        for row in each.memory.modules
    ]
    if modules:
        yield Table(_MEMORY, modules, "memory by module at the peak", frozenset(_MEMORY[3:]), is_brief=is_brief)
    collectives = [
        (
            group.name,
            group.phase,
            format_int(group.count),
            format_bytes(group.bytes),
            str(group.ranks),
            str(group.boxes),
        )
        for group in each.collectives
    ]
    if collectives:
        yield Table(_COLLECTIVES, collectives, "collectives of a step", is_brief=is_brief)
    columns = ("memory beside tensors", "at least", "at most", "source")
    reserves = [(part.name, format_bytes(part.low), format_bytes(part.high), part.source) for part in each.reserves]
    yield Table(columns, reserves, words=frozenset(columns[3:]), is_brief=False)
