"""A predicted step, of a plan and of a report: its range, what limits it, and its largest costs with their reasons."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import format_bytes
from hpu_sim.prediction import time_model
from hpu_sim.prediction.hardware import first_steps_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.prediction.recording import Operation, StepRecording
    from hpu_sim.prediction.time_model import Clock

#: Names of costs that are no module's or line's, by what the device waits for.
WAITS: Final = {
    time_model.HOST: "waiting for the host",
    time_model.NETWORK: "waiting for collectives",
    time_model.DATA: "waiting for batches",
}
#: How far a predicted time can be trusted, which every plan and report says once.
TRUST: Final = "Times are compared with published speeds only: no card was traced."
# Names of the operators with most bytes.
_NAMED: Final = 3


@dataclass(frozen=True)
class Cost:
    """One of the largest costs of a step.

    Attributes:
        name: Modules or line of the program, the optimizer, the host or the network.
        bound: What limits most of it.
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


@dataclass(frozen=True)
class Step:
    """Predicted step.

    Attributes:
        fast_seconds: Fast end of the range.
        seconds: Its time, which is that of the costs and of the trace together.
        slow_seconds: Slow end of the range.
        bounds: Share of the step by what limits it.
        flops: Floating-point operations.
        costs: Largest costs.
        graphs: Graphs to compile; None in eager mode, where operators are compiled one by one.
        first_steps_seconds: Fewest and most seconds that the first steps of published runs took beyond later ones.
    """

    fast_seconds: float
    seconds: float
    slow_seconds: float
    bounds: dict[str, float]
    flops: int
    costs: tuple[Cost, ...]
    graphs: int | None = None
    first_steps_seconds: tuple[float, float] = (0.0, 0.0)


def summarize(clock: Clock, name_of: Callable[[str, str], str], most: int) -> Step:
    """Return a clock's step.

    Args:
        clock: Clock.
        name_of: Function of the phase and the module that names a cost.
        most: Most costs.
    """
    timeline, (low, high) = clock.timeline(), clock.range()
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
        _costs(clock, parts, name_of, most),
        clock.count_graphs(),
        first_steps_seconds(clock.generation),
    )


def _costs(
    clock: Clock, parts: dict[str, Counter[str]], name_of: Callable[[str, str], str], most: int
) -> tuple[Cost, ...]:
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in clock.step.operations:
        operations[name_of(each.phase, each.module)].append(each)
    found = []
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1].total()):
        if seconds.total() > 0:
            own, (bound, _) = operations[name], seconds.most_common(1)[0]
            flops = sum(each.flops for each in own)
            found.append(Cost(name, bound, seconds.total(), flops, _explain(bound, own, seconds[bound], clock)))
    return tuple(found[:most])


def _explain(bound: str, operations: list[Operation], seconds: float, clock: Clock) -> str:
    step = clock.step
    if bound == time_model.NETWORK:
        return _explain_network(step)
    if bound == time_model.DATA:
        return "the loader delivers the samples of a step no faster"
    if bound == time_model.HOST:
        how = "one by one" if clock.mode == "eager" else "as graphs"
        fetches = " and fetches batches" if step.loader_seconds else ""
        count = sum(each.is_launched for each in step.operations)
        return f"the host launches {count} operators {how}{fetches}, slower than the card; a larger batch hides it"
    if bound == time_model.STARTS:
        starts = sum(each.is_launched for each in operations)
        return f"starts of {starts} operators take {seconds * 1e3:.3g} ms; the bridge's fused kernels have fewer"
    return _explain_products(operations) if bound == time_model.MATRIX else _explain_memory(operations)


def _explain_products(operations: list[Operation]) -> str:
    largest = max(operations, key=lambda each: each.flops)
    text = f"{sum(each.flops for each in operations) / 1e12:.3g} TFLOP of {largest.dtype}"
    if not largest.product:
        return text
    batch, rows, inner, columns = largest.product
    times = f", {batch} times" if batch > 1 else ""
    return f"{text}, the largest product {rows} x {inner} by {inner} x {columns}{times}"


def _explain_memory(operations: list[Operation]) -> str:
    bytes_of: Counter[str] = Counter()
    for each in operations:
        bytes_of[each.name.partition(".")[2]] += each.bytes
    names = ", ".join(each for each, _ in bytes_of.most_common(_NAMED))
    return f"{format_bytes(bytes_of.total())} read and written by {len(operations)} operators, most by {names}"


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
