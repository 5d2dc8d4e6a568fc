"""Memory of recorded steps at its peak, by category and module."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import format_bytes
from hpu_sim.plan.modules import rows
from hpu_sim.plan.schema import MemoryPlan, ModuleMemory
from hpu_sim.prediction.hardware import fitting_bytes
from hpu_sim.prediction.recording import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_sim.prediction.recording import ModuleBytes, Recording

# What strategies divide among the ranks, and those that keep all of it on each.
_STATES: Final = ("parameters", "gradients", "optimizer state", "communication buffers")
_REPLICATED: Final = frozenset({"ddp", "single", "hpu_parallel", "hpu_ddp", "hpu_single"})


def memory_plan(recording: Recording) -> MemoryPlan:
    """Return the memory of a recording's steps.

    The peak is that of all steps: the first step has the optimizer's new state and temporaries, and the setup may need
    more than any step.
    """
    steps = [recording.setup, *recording.steps]
    peaks = [(phase, by_module) for step in steps for phase, by_module in step.peaks.items()]
    phase, by_module = max(peaks, key=lambda pair: sum(each.bytes for each in pair[1]))
    at_peak = dict.fromkeys(CATEGORIES, 0)
    for each in by_module:
        at_peak[CATEGORIES[each.category]] += each.bytes
    return MemoryPlan(sum(at_peak.values()), phase, at_peak, _modules(by_module, recording.lines))


def _modules(by_module: Sequence[ModuleBytes], known: Iterable[str]) -> tuple[ModuleMemory, ...]:
    """Return the memory of modules, largest first; those that differ in a number are one row."""
    rows_of = rows({*known, *(each.module for each in by_module)})
    names: defaultdict[str, set[str]] = defaultdict(set)
    parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, category, size in by_module:
        names[rows_of[name]].add(name)
        parts[rows_of[name]][CATEGORIES[category]] += size
    found = (
        ModuleMemory(row, len(names[row]), sizes.total(), dict(sizes.most_common())) for row, sizes in parts.items()
    )
    return tuple(sorted(found, key=lambda each: -each.bytes))


def advice(recording: Recording, memory: MemoryPlan, usable: int) -> str:
    """Return which options need less memory, by what the peak consists of; empty if it fits in the usable bytes."""
    excess = memory.peak_bytes - fitting_bytes(usable)
    if excess <= 0:
        return ""
    states = sum(memory.at_peak[name] for name in _STATES)
    others = format_bytes(memory.peak_bytes - states)
    shards = "more cards (`--nodes`) divide them further"
    if recording.strategy in _REPLICATED:
        more = "" if recording.world_size > 1 else "on several cards (`--devices`), "
        shards = f"{more}`--strategy hpu_fsdp` or `deepspeed_stage_3` divides them among the cards"
    if memory.peak_phase == "optimizer":
        is_fused = any(not each.is_launched for each in recording.steady.operations if each.phase == "optimizer")
        options = [] if is_fused else ["`FusedAdamW` of the bridge is one kernel"]
        options += [] if recording.lazy else ["a graph of lazy mode (`PT_HPU_LAZY_MODE=1`) fuses most of them"]
        rest = f"What operators of the optimizer's step hold is {others}{':' * bool(options)} {', and '.join(options)}."
    else:
        name, blocks = recording.blocks
        recomputed = f"`--recompute {blocks}` recomputes those of {blocks} {name}, and " if blocks else ""
        rest = f"Activations and temporaries are {others}: {recomputed}`--find-batch` finds the largest batch."
    return (
        f"To fit with all of the reserve, the peak must be {format_bytes(excess)} lower. "
        f"Parameters, gradients, optimizer state and buffers are {format_bytes(states)}: {shards}. {rest}"
    )
