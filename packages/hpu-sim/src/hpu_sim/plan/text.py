"""Terminal table of a plan."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import (
    align,
    format_bytes,
    format_int,
    format_range,
    format_rates,
    format_seconds,
    format_shares,
    show_location,
)
from hpu_sim.prediction.recording import PREDICTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_sim.plan.schema import ModuleMemory, Plan, StrategyPlan

_COLUMNS: Final = ("strategy", "generation", "batch", "peak memory", "fits", "step")
_VERDICTS: Final = {"fits": "yes", "tight": "tight", "no": "NO"}
# Smaller shares of a range, and parts of a step, are not worth a word.
_SMALL: Final = 0.05


def render(plan: Plan, width: int | None = None) -> str:
    """Return the table of strategies, then the details of the first one.

    Args:
        plan: Plan.
        width: Columns of the terminal, after which lines are broken between words; None for lines of any length.
    """
    first = plan.strategies[0]
    boxes = f"{first.nodes} x " if first.nodes > 1 else ""
    title = f"hpu-sim plan: {' '.join(plan.command)} on {boxes}{first.devices} x Gaudi ({PREDICTED})"
    is_single = len(plan.strategies) == 1
    last = "samples/s" if is_single else "time per sample"
    parts = [title, *align([(*_COLUMNS, last), *(_row(each, is_single=is_single) for each in plan.strategies)])]
    for each in plan.strategies:
        parts += _details(each) if is_single else (*_limits(each), *_rate(each))
    for each in plan.strategies:
        parts += _advice(each)
    notes = dict.fromkeys(note for each in plan.strategies for note in each.notes)
    parts += [f"  note: {note}" for note in notes]
    if width is not None:
        parts = [_wrap(part, width) for part in parts]
    return "\n".join(parts) + "\n"


def _wrap(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )


def _row(each: StrategyPlan, *, is_single: bool) -> tuple[str, ...]:
    if is_single:
        last = format_rates(each.rate.samples_per_second) if each.rate is not None and each.rate.samples else "-"
    else:
        last = "1" if each.relative is None else "{:.2f} to {:.2f}".format(*each.relative)
    return (
        each.strategy,
        each.generation,
        str(each.batch_size) if each.batch_size else "-",
        format_bytes(each.memory.peak_bytes),
        _VERDICTS[each.verdict],
        format_range(each.time.fast_seconds, each.time.slow_seconds),
        last,
    )


def _limits(each: StrategyPlan) -> Iterable[str]:
    """Yield what limits the step, and what it communicates."""
    limits = ", ".join(f"{name} ({share:.0%})" for name, share in each.time.bounds.items() if share >= _SMALL)
    calls = sum(group.count for group in each.collectives)
    size = sum(group.bytes for group in each.collectives)
    word = "collective" if calls == 1 else "collectives"
    collectives = f"{format_int(calls)} {word} ({format_bytes(size)})" if calls else "no collective"
    yield f"  {each.strategy} on {each.generation}: limited by {limits or 'nothing'}; {collectives} per step"


def _memory(each: StrategyPlan) -> Iterable[str]:
    """Yield the memory beside tensors, which decides whether the job fits."""
    peak = each.memory.peak_bytes
    parts = ", ".join(f"{part.name} {_between(part.low, part.high)}" for part in each.reserves)
    low, high = (peak + sum(ends) for ends in zip(*((part.low, part.high) for part in each.reserves), strict=True))
    yield (
        f"  memory with what tensors do not show: {_between(low, high)} of {format_bytes(each.usable_bytes)} that a "
        f"program can use ({parts})"
    )


def _between(low: int, high: int) -> str:
    return f"{format_bytes(low)} to {format_bytes(high)}"


def _loader(each: StrategyPlan) -> Iterable[str]:
    """Yield the time in which this host fetches batches, and that of a loader with a given rate."""
    for seconds, place in ((each.loader_seconds, "the process that trains"), (each.worker_seconds, "each worker")):
        if seconds:
            yield (
                f"  data: {format_seconds(seconds)} of processor time of this host per step to fetch batches in "
                f"{place}, which the step contains; it is assumed that the cards' host needs half to twice as long"
            )
    if each.fed_seconds:
        limits = "limits the step" if each.fed_seconds >= each.time.seconds else "is faster than the step"
        yield f"  data: a loader of the given rate takes {format_seconds(each.fed_seconds)} per step, and {limits}"


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
        *_limits(each),
        *_rate(each),
        *_loader(each),
        *_costs(each),
        f"  {each.flops:.4g} floating-point operations per step and rank; graphs to compile: {graphs}",
        *_memory(each),
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
    for index, cost in enumerate(each.costs, 1):
        share = f"{cost.seconds / (each.time.seconds or 1.0):.0%}"
        place = f", {show_location(cost.location)}" if cost.location else ""
        yield (
            f"  cost {index}: {cost.name} ({cost.bound}), {format_seconds(cost.seconds)}, {share}{place}: "
            f"{cost.explanation}"
        )
    parts = [f"{name} ({share:.0%})" for name, share in each.time.width_shares.items() if share >= _SMALL]
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
        yield f"  No planned change of {each.strategy} on {each.generation} needs less memory."
        return
    verdict = "is tight" if each.verdict == "tight" else "does not fit"
    yield f"  {each.strategy} on {each.generation} {verdict}:"
    for advice in each.advice:
        verdict = "fits" if advice.fits else "does not fit alone"
        yield f"    {advice.title}: {format_bytes(advice.peak_bytes)}, {verdict}; {advice.cost}"
