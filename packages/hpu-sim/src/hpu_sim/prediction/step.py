"""A predicted step, of a plan and of a report: its range, what limits it, and its largest costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.prediction import time_model
from hpu_sim.prediction.hardware import first_steps_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpu_sim.prediction.recording import Operation
    from hpu_sim.prediction.time_model import Clock

#: Names of costs that are no module's or line's, by what the device waits for.
WAITS: Final = {
    time_model.HOST: "waiting for the host",
    time_model.NETWORK: "waiting for collectives",
}
#: How far a predicted time can be trusted, which every plan and report says once.
TRUST: Final = "Times are compared with published speeds only: no card was traced."
# Names of the operators with most bytes.
_NAMED: Final = 3


@dataclass(frozen=True)
class Cost:
    """A cost of a step.

    Attributes:
        name: Modules or line of the program, the optimizer, the host or the network.
        bound: What limits most of it.
        seconds: Its time.
        flops: Its floating-point operations, backward included.
        bytes: Bytes that its operators read and write, one by one.
        operators: Operators that the host launches.
        mostly: Operators with most bytes.
        location: ``file:line`` of the program that runs it; empty if unknown.
    """

    name: str
    bound: str
    seconds: float
    flops: int
    bytes: int
    operators: int
    mostly: str
    location: str = ""


@dataclass(frozen=True)
class CollectiveGroup:
    """Collectives of a step with the same name, group and phase.

    Attributes:
        name: Collective.
        phase: Part of the step.
        count: Calls per step.
        bytes: Bytes per step that the rank contributes.
        ranks: Ranks of the group.
        boxes: Boxes that the group spans.
    """

    name: str
    phase: str
    count: int
    bytes: int
    ranks: int
    boxes: int


@dataclass(frozen=True)
class Step:
    """Predicted step.

    Attributes:
        fast_seconds: Fast end of the range.
        seconds: Its time, which is that of the costs and of the trace together.
        slow_seconds: Slow end of the range.
        bounds: Share of the step by what limits it.
        flops: Floating-point operations.
        costs: Costs, largest first.
        collectives: Collectives.
        graphs: Graphs to compile; None in eager mode, where operators are compiled one by one.
        first_steps_seconds: Fewest and most seconds that the first steps of published runs took beyond later ones.
    """

    fast_seconds: float
    seconds: float
    slow_seconds: float
    bounds: dict[str, float]
    flops: int
    costs: tuple[Cost, ...]
    collectives: tuple[CollectiveGroup, ...]
    graphs: int | None = None
    first_steps_seconds: tuple[float, float] = (0.0, 0.0)


def summarize(clock: Clock, name_of: Callable[[str, str], str], lines: Mapping[str, str] | None = None) -> Step:
    """Return a clock's step.

    Args:
        clock: Clock.
        name_of: Function of the phase and the module that names a cost.
        lines: ``file:line`` of the program by the name of a cost.
    """
    timeline, (low, high) = clock.timeline, clock.range()
    parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for span in timeline.spans:
        if span.stream == "compute":
            parts[WAITS.get(span.bound) or name_of(span.phase, span.module)].update(span.parts)
    bounds: Counter[str] = sum(parts.values(), Counter())
    return Step(
        low,
        timeline.seconds,
        high,
        {name: seconds / (timeline.seconds or 1.0) for name, seconds in bounds.most_common() if seconds > 0},
        clock.step.flops,
        tuple(_costs(clock, parts, name_of, lines or {})),
        _collectives(clock),
        clock.count_graphs(),
        first_steps_seconds(clock.generation),
    )


def _costs(
    clock: Clock, parts: Mapping[str, Counter[str]], name_of: Callable[[str, str], str], lines: Mapping[str, str]
) -> Iterator[Cost]:
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in clock.step.operations:
        operations[name_of(each.phase, each.module)].append(each)
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1].total()):
        if seconds.total() > 0:
            own, (bound, _) = operations[name], seconds.most_common(1)[0]
            bytes_of: Counter[str] = Counter()
            for each in own:
                bytes_of[each.name.partition(".")[2]] += each.bytes
            mostly = ", ".join(each for each, _ in bytes_of.most_common(_NAMED))
            flops, launched = sum(each.flops for each in own), sum(each.is_launched for each in own)
            size, line = bytes_of.total(), lines.get(name, "")
            yield Cost(name, bound, seconds.total(), flops, size, launched, mostly, line)


def _collectives(clock: Clock) -> tuple[CollectiveGroup, ...]:
    devices = clock.recording.devices
    groups: defaultdict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    for each in clock.step.collectives:
        groups[each.name, each.phase, each.ranks].append(each.bytes)
    return tuple(
        CollectiveGroup(name, phase, len(sizes), sum(sizes), len(ranks), len({rank // devices for rank in ranks}))
        for (name, phase, ranks), sizes in groups.items()
    )
