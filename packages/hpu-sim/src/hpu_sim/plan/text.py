"""Terminal table of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_sim.common.formatting import align, format_bytes, format_int, format_range, show_location
from hpu_sim.prediction.recording import PREDICTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_sim.plan.schema import ModuleMemory, Plan, StrategyPlan

_COLUMNS = ("strategy", "generation", "peak memory", "fits", "step", "limited by", "collectives per step")


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
    yield f"  {each.strategy} on {each.generation} does not fit:"
    for advice in each.advice:
        verdict = "fits" if advice.fits else "does not fit alone"
        yield f"    {advice.title}: {format_bytes(advice.peak_bytes)}, {verdict}; {advice.cost}"
