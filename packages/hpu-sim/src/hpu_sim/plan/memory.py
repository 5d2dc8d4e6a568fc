"""Memory of recorded steps at its peak, by category and module."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hpu_sim.plan.module_names import rows
from hpu_sim.plan.schema import MemoryPlan, ModuleMemory
from hpu_sim.prediction.recording import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpu_sim.prediction.recording import MemorySample, Recording, StepRecording

#: Maximum number of modules; the others are one row.
MAX_MODULES: Final = 10
OTHER_MODULES: Final = "other modules"


def memory_plan(recording: Recording) -> MemoryPlan:
    """Return the memory of a recording's steps.

    The peak is that of all steps: the first step has the optimizer's new state and temporaries, and the setup may need
    more than any step.
    """
    steps = [recording.setup, *recording.steps]
    step, peak = max(((step, sample) for step in steps for sample in step.samples), key=lambda pair: _total(pair[1]))
    return MemoryPlan(
        peak_bytes=_total(peak),
        peak_phase=peak.phase,
        at_peak=dict(zip(CATEGORIES, peak.by_category, strict=True)),
        modules=_modules(step, peak, recording.lines),
    )


def _modules(step: StepRecording, peak: MemorySample, known: Iterable[str]) -> tuple[ModuleMemory, ...]:
    """Return the modules with most memory at the peak; those that differ in a number are one row."""
    by_module = step.peaks.get(peak.phase, ())
    rows_of = rows({*known, *(each.module for each in by_module)})
    sizes: Counter[str] = Counter()
    for name, _, size in by_module:
        sizes[rows_of[name]] += size
    shown = [row for row, _ in sizes.most_common(MAX_MODULES)]
    names: defaultdict[str, set[str]] = defaultdict(set)
    parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, category, size in by_module:
        row = rows_of[name] if rows_of[name] in shown else OTHER_MODULES
        names[row].add(name)
        parts[row][CATEGORIES[category]] += size
    return tuple(
        ModuleMemory(row, len(names[row]), parts[row].total(), dict(parts[row].most_common()))
        for row in (*shown, OTHER_MODULES)
        if row in names
    )


def _total(sample: MemorySample) -> int:
    return sum(sample.by_category)
