"""Terminal table of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import (
    align,
    format_bytes,
    format_int,
    format_range,
    format_rates,
    format_shares,
    show_location,
)
from hpu_sim.prediction.recording import PREDICTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_sim.plan.schema import ModuleMemory, Plan, StrategyPlan

_COLUMNS: Final = (
    "strategy", "generation", "peak memory", "fits", "step", "samples/s", "limited by", "collectives per step",
)  # fmt: skip
# Smaller shares of a range are not worth a word.
_SMALL: Final = 0.05


def render(plan: Plan) -> str:
    """Return the table of strategies, then the details of the first one."""
    first = plan.strategies[0]
    boxes = f"{first.nodes} x " if first.nodes > 1 else ""
    title = f"hpu-sim plan: {' '.join(plan.command)} on {boxes}{first.devices} x Gaudi ({PREDICTED})"
    parts = [title, *align([_COLUMNS, *map(_row, plan.strategies)])]
    for each in plan.strategies if len(plan.strategies) == 1 else ():
        parts += _details(each)
    for each in plan.strategies:
        parts += _advice(each)
    notes = dict.fromkeys(note for each in plan.strategies for note in each.notes)
    parts += [f"  note: {note}" for note in notes]
    return "\n".join(parts) + "\n"


def _row(each: StrategyPlan) -> tuple[str, ...]:
    limit = next(iter(each.time.bounds.items()), ("-", 0.0))
    calls = sum(group.count for group in each.collectives)
    size = sum(group.bytes for group in each.collectives)
    return (
        each.strategy,
        each.generation,
        f"{format_bytes(each.memory.peak_bytes)} of {format_bytes(each.usable_bytes)}",
        "yes" if each.fits else "NO",
        format_range(each.time.fast_seconds, each.time.slow_seconds),
        format_rates(each.rate.samples_per_second) if each.rate is not None and each.rate.samples else "-",
        f"{limit[0]} ({limit[1]:.0%})",
        f"{format_int(calls)} ({format_bytes(size)})" if calls else "0",
    )


def _details(each: StrategyPlan) -> list[str]:
    batch = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in each.inputs) or "not known"
    graphs = "one per operator and shape (eager)" if each.graphs is None else str(each.graphs)
    peak = ", ".join(f"{name} {format_bytes(size)}" for name, size in each.memory.at_peak.items() if size)
    moments = ", ".join(f"{name} {format_bytes(size)}" for name, size in each.memory.moments.items())
    lines = [
        (
            f"  {format_int(each.parameters)} parameters, {format_int(each.trainable)} trained, precision "
            f"{each.precision}, {'lazy' if each.lazy else 'eager'} mode, rank {each.rank}; batch per rank: {batch}"
        ),
        "  ranks planned: " + _ranks(each),
        *_rate(each),
        *_costs(each),
        f"  {each.flops:.4g} floating-point operations per step and rank; graphs to compile: {graphs}",
        f"  memory at the peak ({each.memory.peak_phase}): {peak}",
        f"  highest memory: {moments}",
        "  memory by module at the peak:",
        *align([_module(row) for row in each.memory.modules], indent=4),
    ]
    lines += [
        f"  {group.name} in {group.phase}: {group.count} per step, {format_bytes(group.bytes)}, {group.ranks} ranks in "
        f"{group.boxes} box{'es' if group.boxes > 1 else ''}"
        for group in each.collectives
    ]
    lines += [
        f"  {show_location(read.location)} reads a value {read.count} times per step: `{read.source}`"
        + (f" (the plan assumed {read.assumed})" if read.assumed else "")
        for read in each.host_reads
    ]
    return lines


def _rate(each: StrategyPlan) -> Iterable[str]:
    """Yield the speed of the job, and the time to train."""
    rate = each.rate
    if rate is None:
        return
    if rate.samples:
        batches = f"{each.accumulate} batches" if each.accumulate > 1 else "one batch"
        tokens = f", {format_rates(rate.tokens_per_second)} tokens/s" if rate.tokens else ""
        samples = f"{format_rates(rate.samples_per_second)} samples/s{tokens}"
        yield f"  {samples} on all cards: {format_int(rate.samples)} samples per step, {batches} per rank"
    if rate.mfu[0]:
        yield (
            f"  use of the matrix engines by the model (MFU): {format_shares(rate.mfu)} of the stated peak, "
            f"{format_shares(rate.mfu_of_measured)} of the highest measured rate"
        )
    if rate.planned_samples and rate.samples:
        slow, fast = rate.hours
        cards = f"{rate.card_hours[1]:,.4g} to {rate.card_hours[0]:,.4g} card hours".replace(",", " ")
        samples = format_int(rate.planned_samples)
        yield f"  {samples} samples: {format_range(fast * 3600, slow * 3600)}, {cards}"


def _costs(each: StrategyPlan) -> Iterable[str]:
    """Yield the largest costs of a step, and why its range is as wide as it is."""
    total = each.time.slow_seconds or 1.0
    for index, cost in enumerate(each.costs, 1):
        share = f"{cost.slow_seconds / total:.0%}"
        place = f", {show_location(cost.location)}" if cost.location else ""
        yield (
            f"  cost {index}: {cost.name} ({cost.bound}), {format_range(cost.fast_seconds, cost.slow_seconds)}, "
            f"{share}{place}: {cost.explanation}"
        )
    width = sum(abs(slow - fast) for fast, slow in each.range_by_bound.values())
    parts = [
        f"{name} {format_range(fast, slow)} ({(slow - fast) / width:.0%})"
        for name, (fast, slow) in each.range_by_bound.items()
        if width and (slow - fast) / width > _SMALL
    ]
    if parts:
        yield f"  what makes the range wide: {', '.join(parts)}"


def _ranks(each: StrategyPlan) -> str:
    shown = ", ".join(f"{rank.rank} ({format_bytes(rank.peak_bytes)})" for rank in each.ranks)
    return shown if len(each.ranks) > 1 or each.nodes * each.devices == 1 else f"{shown}; shards of all ranks are equal"


def _module(row: ModuleMemory) -> tuple[str, ...]:
    times = f" ({row.count} modules)" if row.count > 1 else ""
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in row.by_category.items())
    return f"{row.name}{times}", format_bytes(row.bytes), parts


def _advice(each: StrategyPlan) -> Iterable[str]:
    if each.fits:
        return
    if not each.advice:
        yield f"  {each.strategy} on {each.generation} does not fit, and no planned change needs less memory."
        return
    yield f"  {each.strategy} on {each.generation} does not fit:"
    for advice in each.advice:
        verdict = "fits" if advice.fits else "does not fit alone"
        yield f"    {advice.title}: {format_bytes(advice.peak_bytes)}, {verdict}; {advice.cost}"
