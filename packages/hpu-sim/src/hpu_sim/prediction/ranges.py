"""Range of a predicted step, or of the ratio of two, by the independent errors of the figures of the hardware.

A figure is with equal chances below and above its middle, and anywhere between the middle and an end. Each one moves to
both ends, what it changes between is taken as linear in logarithms, and the changes add as independent ones, with what
no figure explains. The range is the 80 % prediction interval of a normal distribution with that mean and variance.

In the ratio of two strategies, generations or batch sizes, which a choice needs, an error moves both predictions at
once, so that most of it cancels.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction.hardware import calibrated, from_ranges, own_figures, uncertain, unexplained
from hpu_sim.prediction.time_model import Schedule, mode_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.prediction.fusion import Segment
    from hpu_sim.prediction.recording import Recording
    from hpu_sim.prediction.time_model import Timeline

#: Name of the part of a range that no figure explains.
UNEXPLAINED: Final = "what the model does not explain"
#: Standard deviations on either side of the mean that hold 80 % of a normal distribution.
Z_SCORE: Final = NormalDist().inv_cdf(0.9)
_OF_NETWORK: Final = ("collective_seconds", "in_box_efficiency", "between_boxes_efficiency")


@dataclass(frozen=True)
class Range:
    """Range of a predicted number that holds eight cases in ten.

    Attributes:
        low: Low end.
        high: High end.
        shares: Share of each figure in the squared width, the largest first.
    """

    low: float
    high: float
    shares: Mapping[str, float]

    @property
    def middle(self) -> float:
        """Geometric middle, the mean of the logarithm.

        A step is as long as the longest of what limits it, so that errors make it slower by more than faster. With all
        figures in the middle it is therefore faster than in the middle of its range.
        """
        return math.sqrt(self.low * self.high)

    def at_least(self, number: float) -> Range:
        """Return the range of the larger of this number and another one, which is known."""
        return Range(max(self.low, number), max(self.high, number), self.shares)


class Clock:
    """Clock of the steady step of a recording on a generation.

    It finds the kernels once, and predicts the step once for each error of the figures.
    """

    def __init__(self, recording: Recording, generation: str) -> None:
        self.recording = recording
        self.step = recording.steady
        self.generation = generation
        self.mode = mode_of(recording)
        self._known = calibrated(generation)
        self._parts: tuple[Segment, ...] | None = None
        self._found: dict[tuple[str, float], float] = {}

    def _schedule(self, name: str = "", value: float = 0.0) -> Schedule:
        moved = {name: (value, value)} if name else {}
        device = from_ranges(self.generation, {**self._known, **moved})
        schedule = Schedule(self.step, device, self.recording.devices, self.mode, self._parts)
        self._parts = schedule.parts
        return schedule

    def seconds(self, name: str = "", value: float = 0.0) -> float:
        """Return the seconds with one figure moved to a value, if any, and all others in the middle of their ranges."""
        key = name, value
        if key not in self._found:
            self._found[key] = self._schedule(*key).seconds()
        return self._found[key]

    def at_ends(self, name: str) -> tuple[float, float]:
        """Return the seconds with a figure at the slow and at the fast end of its range, if the step depends on it."""
        if name not in self.used:
            return (self.seconds(),) * 2
        slow, fast = self.used[name]
        return self.seconds(name, slow), self.seconds(name, fast)

    def timeline(self) -> Timeline:
        """Return the timeline with all figures in the middle."""
        return self._schedule().timeline()

    def range(self) -> Range:
        """Return the range of the seconds."""
        return interval(self.seconds(), {name: self.at_ends(name) for name in self.used}, unexplained())

    @functools.cached_property
    def used(self) -> dict[str, tuple[float, float]]:
        """Ranges of the figures that the step depends on, slow end first."""
        is_eager, step = self.mode == "eager", self.step
        unused = {
            "trace_seconds": self.mode != "lazy",
            "launch_seconds": self.mode == "lazy",
            "graph_seconds": is_eager,
            "pipeline_parts": is_eager,
            "sync_seconds": not any(each.host_sync for each in step.operations),
            "loader_factor": not step.loader_seconds and not step.worker_seconds,
            **dict.fromkeys(_OF_NETWORK, not step.collectives),
        }
        return {name: ends for name, ends in uncertain(self.generation).items() if not unused.get(name, False)}


def ratio(of: Clock, to: Clock) -> Range:
    """Return the step of one clock divided by that of another.

    A figure that each generation has for itself is wrong of one and right of the other.
    """
    middles = of.seconds(), to.seconds()
    own = own_figures(of.generation) if of.generation != to.generation else frozenset()
    ends: dict[str, tuple[float, ...]] = {}
    for name in {**of.used, **to.used}:
        above, below = of.at_ends(name), to.at_ends(name)
        if name in own:
            ends[f"{name} of {of.generation}"] = tuple(each / middles[1] for each in above)
            ends[f"{name} of {to.generation}"] = tuple(middles[0] / each for each in below)
        else:
            ends[name] = tuple(one / other for one, other in zip(above, below, strict=True))
    return interval(middles[0] / middles[1], ends, unexplained())


def interval(middle: float, ends: Mapping[str, tuple[float, ...]], beyond: float) -> Range:
    """Return the range of a number.

    Args:
        middle: Number with all figures in the middle.
        ends: Number with each figure at the ends of its range, by name.
        beyond: Logarithm of the factor by which it may be off beyond the figures.
    """
    logs = {name: [math.log(each / middle) for each in moved] for name, moved in ends.items()} if middle else {}
    logs[UNEXPLAINED] = [-beyond, beyond]
    mean, variances = 0.0, {}
    for name, moved in logs.items():
        above, below = max(*moved, 0.0), -min(*moved, 0.0)
        shift = (above - below) / 4
        mean += shift
        variances[name] = (above**2 + below**2) / 6 - shift**2
    total = sum(variances.values())
    center, factor = middle * math.exp(mean), math.exp(Z_SCORE * math.sqrt(total))
    ordered = sorted(variances, key=lambda name: -variances[name])
    shares = {name: variances[name] / total for name in ordered if total}
    return Range(center / factor, center * factor, shares)
