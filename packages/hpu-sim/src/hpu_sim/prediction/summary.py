"""Summary of a predicted step: its range, what limits it, and its largest costs with the reason of each."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from hpu_sim.common.formatting import format_bytes
from hpu_sim.prediction import fusion, matrix_engine
from hpu_sim.prediction.hardware import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.prediction.ranges import Clock, Range
    from hpu_sim.prediction.recording import Operation, StepRecording
    from hpu_sim.prediction.time_model import Timeline

#: Names of costs that are no module's or line's.
HOST: Final = "waiting for the host"
NETWORK: Final = "waiting for collectives"
# Products that fill more of the engine are not worth a word; names of the operators with most bytes.
_FULL: Final = 0.9
_NAMED: Final = 3


@dataclass(frozen=True)
class StepTime:
    """Predicted duration of a step, as a range.

    Attributes:
        fast_seconds: Fast end.
        seconds: Middle.
        slow_seconds: Slow end.
        bounds: Share of the step by what limits it: matrix engine, vector engines, memory, network, host.
        width_shares: Share of each cause in the squared width of the range, the largest first.
        graphs: Graphs to compile; None in eager mode, where operators are compiled one by one.
    """

    fast_seconds: float
    seconds: float
    slow_seconds: float
    bounds: dict[str, float]
    width_shares: dict[str, float]
    graphs: int | None = None


@dataclass(frozen=True)
class Cost:
    """One of the largest costs of a step.

    Attributes:
        name: Modules or line of the program, the optimizer, the host or the network.
        bound: What limits it.
        seconds: Its time.
        flops: Its floating-point operations, backward included.
        explanation: Why it takes that time.
        location: ``file:line`` of the program that runs it; empty if unknown.
    """

    name: str
    bound: str
    seconds: float
    flops: int
    explanation: str
    location: str = ""


class Summary(NamedTuple):
    """Range of a step's seconds, timeline as long as the middle of that, and duration."""

    range: Range
    timeline: Timeline
    time: StepTime


def summarize(clock: Clock, least: float = 0.0) -> Summary:
    """Return the summary of a clock's step, which takes at least so many seconds."""
    found = clock.range()
    timeline = clock.timeline().scaled(found.middle)
    found = found.at_least(least)
    graphs = None if clock.mode == "eager" else fusion.count_graphs(clock.step, is_lazy=clock.mode == "lazy")
    shares: defaultdict[str, float] = defaultdict(float)
    for name, share in found.shares.items():
        shares[cause_of(name, clock.generation)] += share
    time = StepTime(
        found.low,
        found.middle,
        found.high,
        _bounds(timeline),
        dict(sorted(shares.items(), key=lambda item: -item[1])),
        graphs,
    )
    return Summary(found, timeline, time)


def _bounds(timeline: Timeline) -> dict[str, float]:
    total = timeline.seconds or 1.0
    shares: defaultdict[str, float] = defaultdict(float)
    for span in timeline.spans:
        if span.stream == "compute":
            shares[span.bound] += span.seconds / total
    shares["network"] += timeline.exposed / total
    return {name: round(share, 4) for name, share in sorted(shares.items(), key=lambda item: -item[1]) if share > 0}


def costs(clock: Clock, timeline: Timeline, name_of: Callable[[str, str], str], most: int) -> tuple[Cost, ...]:
    """Return the largest costs of a clock's step, named by a function of the phase and the module."""
    seconds = defaultdict[str, float](float, {NETWORK: timeline.exposed})
    bounds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    bounds[NETWORK]["network"] = 1.0
    for span in timeline.spans:
        if span.stream == "compute":
            name = HOST if span.bound == "host" else name_of(span.phase, span.module)
            seconds[name] += span.seconds
            bounds[name][span.bound] += span.seconds
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in clock.step.operations:
        operations[name_of(each.phase, each.module)].append(each)
    found = []
    for name, total in sorted(seconds.items(), key=lambda item: -item[1])[:most]:
        bound = max(bounds[name], key=bounds[name].__getitem__)
        own = operations[name]
        explanation = _explain(name, bound, own, clock)
        if total > 0:
            found.append(Cost(name, bound, total, sum(each.flops for each in own), explanation))
    return tuple(found)


def _explain(name: str, bound: str, operations: list[Operation], clock: Clock) -> str:
    step = clock.step
    if name == NETWORK:
        return _explain_network(step)
    if name == HOST:
        how = "one by one" if clock.mode == "eager" else "as graphs"
        fetches = " and fetches batches" if step.loader_seconds else ""
        count = len(step.operations)
        return f"the host launches {count} operators {how}{fetches}, slower than the card; a larger batch hides it"
    products = [each for each in operations if each.products]
    if bound == "matrix engine" and products:
        largest = max(products, key=lambda each: each.flops)
        batch, rows, columns, inner = largest.products[0][:4]
        shape = f"{rows} x {inner} by {inner} x {columns}" + (f", {batch} times" if batch > 1 else "")
        flops = sum(each.flops for each in operations)
        item = 4 if largest.dtype == "float32" else 2
        share = matrix_engine.share_of_peak(largest.products[0], largest.dtype, item, clock.generation)
        filled = f"; it fills {share:.0%} of the engine" if share < _FULL else ""
        return f"{flops / 1e12:.3g} TFLOP of {largest.dtype}, the largest product {shape}{filled}"
    moved = sum(each.bytes for each in operations)
    bytes_of: Counter[str] = Counter()
    for each in operations:
        bytes_of[each.name.partition(".")[2]] += each.bytes
    names = ", ".join(each for each, _ in bytes_of.most_common(_NAMED))
    return f"{format_bytes(moved)} read and written by {len(operations)} operators, most by {names}"


def _explain_network(step: StepRecording) -> str:
    sizes: Counter[tuple[str, str, int]] = Counter()
    for each in step.collectives:
        sizes[each.name, each.phase, len(each.ranks)] += each.total_bytes
    if not sizes:
        return "no collective"
    ((key, size),) = sizes.most_common(1)
    name, phase, ranks = key
    count = sum((each.name, each.phase, len(each.ranks)) == key for each in step.collectives)
    mean = format_bytes(math.ceil(size / count))
    return f"nothing is left to compute beside them; most is {name} in {phase}: {count} calls of {mean}, {ranks} ranks"
