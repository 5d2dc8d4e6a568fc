"""Memory of a recorded step: its peak by category, and the highest memory of each part of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.plan.memory_tracker import CATEGORIES
from hpu_sim.plan.schema import MemoryPlan, MemoryPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_sim.plan.recording import MemorySample, Recording

#: Maximum number of points of a memory chart.
MAX_POINTS: Final = 240


def memory_plan(recording: Recording) -> MemoryPlan:
    """Return the memory of a recording's steps.

    The peak is that of all steps: the first step has the optimizer's new state and temporaries, and the setup may need
    more than any step.

    Args:
        recording: The recording.
    """
    steps = [recording.setup, *recording.steps]
    samples = [sample for step in steps for sample in step.samples]
    peak = max(samples, key=_total)
    steady = recording.steady.samples
    moments = {
        phase: max((_total(each) for each in steady if each.phase == phase), default=0)
        for phase in ("forward", "backward", "optimizer")
    }
    moments = {"setup": max((_total(each) for each in recording.setup.samples), default=0), **moments}
    return MemoryPlan(
        peak_bytes=_total(peak),
        peak_phase=peak.phase,
        at_peak=dict(zip(CATEGORIES, peak.by_category, strict=True)),
        moments=moments,
        points=_points(steady),
    )


def _total(sample: MemorySample) -> int:
    return sum(sample.by_category)


def _points(samples: Sequence[MemorySample]) -> tuple[MemoryPoint, ...]:
    """Return at most :data:`MAX_POINTS` samples, each the highest of its part of the step."""
    size = max(-(-len(samples) // MAX_POINTS), 1)
    highest = (max(samples[start : start + size], key=_total) for start in range(0, len(samples), size))
    return tuple(MemoryPoint(each.after, each.phase, each.by_category) for each in highest)
