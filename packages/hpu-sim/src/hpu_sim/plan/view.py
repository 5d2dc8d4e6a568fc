"""Document of a plan: what a terminal and a page show of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from hpu_sim.common.document import Document, Heading, Part, Table, Text, table
from hpu_sim.common.formatting import (
    format_bytes,
    format_int,
    format_rates,
    format_seconds,
    format_shares,
    show_location,
)
from hpu_sim.prediction import view as step_view
from hpu_sim.prediction.hardware import published_ratios
from hpu_sim.prediction.step import TRUST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpu_sim.plan.schema import ModuleMemory, Plan, StrategyPlan

# Modules in a terminal.
_BRIEF_MODULES: Final = 10
_FITS: Final = {"fits": "yes", "tight": "tight", "no": "NO"}
_GOOD: Final = (("yes",), ("tight", "NO"))


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
        yield Text(f"{each.strategy} on {each.generation}: {step_view.limits(each.step)}")
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
    columns: dict[str, Callable[[StrategyPlan], str]] = {
        "strategy": lambda each: each.strategy,
        "cards": lambda each: f"{_boxes(each)}{each.devices} {each.generation}",
        "batch": lambda each: str(each.batch_size or "-"),
        "peak memory": lambda each: format_bytes(each.memory.peak_bytes),
        "fits": lambda each: _FITS[each.verdict],
        "step": lambda each: step_view.time_of(each.step),
        "samples/s": lambda each: format_rates(each.rate.samples_per_second) if each.rate.samples else "-",
        "MFU": lambda each: format_shares(each.rate.mfu) if each.rate.mfu[0] else "-",
        "changed": lambda each: each.settings,
        "tokens/s": lambda each: format_rates(each.rate.tokens_per_second) if each.rate.tokens else "",
        "cost of 10^6 samples": lambda each: format_rates(each.rate.cost[::-1]) if each.rate.price else "",
    }
    return table(columns, plan.strategies, good=_GOOD)


def _boxes(each: StrategyPlan) -> str:
    return f"{each.nodes} x " if each.nodes > 1 else ""


def _ratios() -> str:
    """Return how often a ratio such as that of two rows was right."""
    known = published_ratios()
    count, inside, ranked = (int(known[name]) for name in ("count", "inside", "ranked"))
    return (
        f"two rows: of {count} published ratios, {inside} were within a factor of {known['factor']:g} of the predicted "
        f"one, and {ranked} had the same of the two as the faster one (Gaudi 3 and 2, cards, modes, batches)"
    )


def _sentences(each: StrategyPlan) -> Iterator[str]:
    """Yield what the table of all plans does not say."""
    rate = each.rate
    if rate.samples:
        batches = f"{each.accumulate} batches" if each.accumulate > 1 else "one batch"
        yield f"{format_int(rate.samples)} samples per step, {batches} per rank"
    batch = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in each.inputs) or "not known"
    yield (
        f"{format_int(each.parameters)} parameters, {format_int(each.trainable)} trained, precision {each.precision}, "
        f"{'lazy' if each.lazy else 'eager'} mode; batch per rank: {batch}"
    )
    yield step_view.work(each.step)
    low, high = map(format_bytes, each.with_reserve)
    yield (
        f"memory with workspaces of graphs and fragments, which tensors do not show: {low} to {high} of "
        f"{format_bytes(each.usable_bytes)} that a program can use"
    )
    at_peak = {name: size for name, size in each.memory.at_peak.items() if size}
    yield f"memory at the peak ({each.memory.peak_phase}): {_sizes(at_peak)}"
    for read in each.host_reads:
        what = "waits for the device" if "synchronize" in read.operator else "reads a value"
        times = "once" if read.count == 1 else f"{read.count} times"
        within = f" in {show_location(read.within)}" if read.within else ""
        cost = f"; the step is {format_seconds(read.seconds)} longer for it" if read.seconds else ""
        assumed = f" (the plan assumed {read.assumed})" if read.assumed else ""
        yield (
            f"{show_location(read.location) or 'the program'} {what} {times} per step{within}: "
            f"`{read.source}`{assumed}{cost}"
        )


def _sizes(named: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in named.items())


def _tables(each: StrategyPlan, *, is_brief: bool) -> Iterator[Part]:
    yield from step_view.tables(each.step, is_brief=is_brief)
    modules: dict[str, Callable[[ModuleMemory], str]] = {
        "module": lambda row: row.name,
        "modules": lambda row: format_int(row.count),
        "bytes": lambda row: format_bytes(row.bytes),
        "of which": lambda row: _sizes(row.by_category),
    }
    if each.memory.modules:
        title, words = "memory by module at the peak", frozenset(("of which",))
        rows = each.memory.modules[: step_view.MAX_ROWS]
        yield table(modules, rows, title=title, words=words, most=_BRIEF_MODULES, is_brief=is_brief)
