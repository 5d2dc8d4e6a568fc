"""Range of a predicted step, or of the ratio of two, by the independent errors of the figures of the hardware.

Each error moves its figure to the ends of its range. The changes add in quadrature, with what no figure explains. In
the ratio of two strategies, generations or batch sizes, which a choice needs, an error moves both predictions at once,
so that most of it cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction.hardware import calibrated, from_ranges, moves, unexplained
from hpu_sim.prediction.time_model import mode_of, segments_of, step_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpu_sim.prediction.hardware import Moved
    from hpu_sim.prediction.recording import Recording, StepRecording
    from hpu_sim.prediction.time_model import Mode

#: Name of the part of a range that no figure explains.
UNEXPLAINED: Final = "what the model does not explain"
_UNMOVED: Final[tuple[Moved, Moved]] = ({}, {})
_OF_NETWORK: Final = ("collective_seconds", "in_box_efficiency", "between_boxes_efficiency")


@dataclass(frozen=True)
class Range:
    """Range of a predicted number.

    Attributes:
        low: Low end.
        high: High end.
        at_middles: With all figures in the middle of their ranges.
        shares: Share of each figure in the squared width, the largest first.
    """

    low: float
    high: float
    at_middles: float
    shares: Mapping[str, float]

    @property
    def middle(self) -> float:
        """Geometric middle, about the median of the errors.

        A step is as long as the longest of what limits it, so that errors make it slower by more than faster. With all
        figures in the middle it is therefore faster than in the middle of its range.
        """
        return math.sqrt(self.low * self.high)

    def at_least(self, number: float) -> Range:
        """Return the range of the larger of this number and another one, which is known."""
        low, high, at_middles = (max(each, number) for each in (self.low, self.high, self.at_middles))
        return Range(low, high, at_middles, self.shares)


def step_range(step: StepRecording, generation: str, devices: int, mode: Mode) -> Range:
    """Return the seconds of a recorded step in a mode, with so many devices per box."""
    seconds = _clock(step, generation, devices, mode)
    ends = {name: (seconds(slow), seconds(fast)) for name, (slow, fast) in _used(step, generation, mode).items()}
    return quadrature(seconds({}), ends, unexplained())


def middle(recording: Recording, generation: str) -> float:
    """Return the seconds of a recorded step with all figures in the middle of their ranges."""
    return _clock(recording.steady, generation, recording.devices, mode_of(recording))({})


def ratio(of: tuple[Recording, str], to: tuple[Recording, str]) -> Range:
    """Return the step of one recording and generation divided by that of another."""
    dividend, divisor = (_clock(each.steady, generation, each.devices, mode_of(each)) for each, generation in (of, to))
    above, below = (_used(each.steady, generation, mode_of(each)) for each, generation in (of, to))
    ends = {
        name: tuple(
            dividend(moved) / divisor(other)
            for moved, other in zip(above.get(name, _UNMOVED), below.get(name, _UNMOVED), strict=True)
        )
        for name in {**above, **below}
    }
    return quadrature(dividend({}) / divisor({}), ends, unexplained())


def _used(step: StepRecording, generation: str, mode: Mode) -> dict[str, tuple[Moved, Moved]]:
    """Return the errors of the figures that a step depends on."""
    is_eager = mode == "eager"
    unused = {
        "trace_seconds": mode != "lazy",
        "launch_seconds": mode == "lazy",
        "graph_seconds": is_eager,
        "pipeline_parts": is_eager,
        "sync_seconds": not any(each.host_sync for each in step.operations),
        "loader_factor": not step.loader_seconds and not step.worker_seconds,
        **dict.fromkeys(_OF_NETWORK, not step.collectives),
    }
    return {name: ends for name, ends in moves(generation).items() if not unused.get(name.partition(" ")[0], False)}


def quadrature(middle: float, ends: Mapping[str, tuple[float, ...]], beyond: float) -> Range:
    """Return the range of a number.

    Args:
        middle: Number with all figures in the middle.
        ends: Number with each figure at the ends of its range, by name.
        beyond: Logarithm of the factor by which it may be off beyond the figures.
    """
    logs = {name: [math.log(each / middle) for each in moved] for name, moved in ends.items()} if middle else {}
    logs[UNEXPLAINED] = [-beyond, beyond]
    below, above = (sum(end(*each, 0.0) ** 2 for each in logs.values()) for end in (min, max))
    shares = {name: (max(each) - min(each)) ** 2 for name, each in logs.items()}
    total = sum(shares.values())
    ordered = sorted(shares, key=lambda name: -shares[name])
    return Range(
        middle * math.exp(-math.sqrt(below)),
        middle * math.exp(math.sqrt(above)),
        middle,
        {name: shares[name] / total for name in ordered if total},
    )


def _clock(step: StepRecording, generation: str, devices: int, mode: Mode) -> Callable[[Moved], float]:
    """Return a function that predicts a step with some figures moved, each of which it does once."""
    known = calibrated(generation)
    parts = segments_of(step, from_ranges(generation, "middle", known), mode)
    found: dict[tuple[tuple[str, float], ...], float] = {}

    def seconds(moved: Moved) -> float:
        key = tuple(moved.items())
        if key not in found:
            device = from_ranges(generation, "middle", {**known, **{name: (end, end) for name, end in key}})
            found[key] = step_seconds(step, device, devices, mode=mode, parts=parts)
        return found[key]

    return seconds
