"""Largest costs of a step, why each takes its time, and why the predicted range is as wide as it is."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hpu_sim.common.formatting import format_bytes
from hpu_sim.plan.module_names import OUTSIDE, user_name
from hpu_sim.plan.schema import CostPlan
from hpu_sim.prediction import matrix_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpu_sim.prediction.ranges import Range
    from hpu_sim.prediction.recording import Operation, Recording, StepRecording
    from hpu_sim.prediction.time_model import Span, Timeline

#: Number of costs in a plan.
MAX_COSTS: Final = 3
#: Names of costs that are no module's.
OPTIMIZER: Final = "optimizer"
HOST: Final = "launches of the host"
NETWORK: Final = "waiting for collectives"
# What the uncertain figures of the hardware stand for.
_CAUSES: Final = {
    "matrix_efficiency": "rate of the matrix engine",
    "writeout": "rate of the matrix engine",
    "memory_efficiency": "rate of the memory",
    "load_cycles": "rate of the vector engines",
    "special_cycles": "rate of the vector engines",
    "pipeline_parts": "overlap of the engines",
    "bundle_slices": "overlap of the engines",
    "kernel_seconds": "start of kernels",
    "start_seconds": "start of graphs",
    "trace_seconds": "tracing by the host",
    "launch_seconds": "launches by the host",
    "graph_seconds": "launches by the host",
    "sync_seconds": "reads by the host",
    "loader_factor": "speed of the cards' host in fetching batches",
    "collective_seconds": "collectives",
    "in_box_efficiency": "collectives",
    "between_boxes_efficiency": "collectives",
}
# Products that fill more of the engine are not worth a word.
_FULL: Final = 0.9


def costs(recording: Recording, timeline: Timeline, generation: str) -> tuple[CostPlan, ...]:
    """Return the largest costs of a step on a generation."""
    found = {**by_name(_named(timeline)), NETWORK: (timeline.exposed, "network")}
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in recording.steady.operations:
        operations[OPTIMIZER if each.phase == "optimizer" else user_name(each.module) or OUTSIDE].append(each)
    lines = {user_name(module): line for module, line in reversed(recording.lines.items())}
    return tuple(
        CostPlan(
            name, bound, seconds, _explain(name, bound, operations[name], recording, generation), lines.get(name, "")
        )
        for name, (seconds, bound) in sorted(found.items(), key=lambda item: -item[1][0])[:MAX_COSTS]
        if seconds > 0
    )


def by_name(spans: Iterable[tuple[str, Span]]) -> dict[str, tuple[float, str]]:
    """Return the seconds of named spans, and what limits most of them, by name."""
    seconds: defaultdict[str, float] = defaultdict(float)
    bounds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, span in spans:
        seconds[name] += span.seconds
        bounds[name][span.bound] += span.seconds
    return {name: (seconds[name], max(each, key=each.__getitem__)) for name, each in bounds.items()}


def width_shares(found: Range) -> dict[str, float]:
    """Return the share of each cause in the squared width of a step's range, the largest first."""
    shares: defaultdict[str, float] = defaultdict(float)
    for name, share in found.shares.items():
        # A figure may be that of a generation.
        shares[_CAUSES.get(name.partition(" ")[0], name)] += share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _named(timeline: Timeline) -> Iterator[tuple[str, Span]]:
    """Yield the spans of the device with the names of their costs."""
    for span in timeline.spans:
        if span.stream != "compute":
            continue
        if span.bound == "host":
            yield HOST, span
        elif span.phase == "optimizer":
            yield OPTIMIZER, span
        else:
            yield user_name(span.module) or OUTSIDE, span


def _explain(name: str, bound: str, operations: list[Operation], recording: Recording, generation: str) -> str:
    if name == NETWORK:
        return _explain_network(recording.steady)
    if name == HOST:
        count = len(recording.steady.operations)
        how = "one by one" if not (recording.lazy or recording.compiled) else "as graphs"
        fetches = " and fetches batches" if recording.steady.loader_seconds else ""
        return f"the host launches {count} operators {how}{fetches}, slower than the card; a larger batch hides it"
    products = [each for each in operations if each.products]
    if bound == "matrix engine" and products:
        largest = max(products, key=lambda each: each.flops)
        batch, rows, columns, inner = largest.products[0][:4]
        shape = f"{rows} x {inner} by {inner} x {columns}" + (f", {batch} times" if batch > 1 else "")
        flops = sum(each.flops for each in operations)
        item = 4 if largest.dtype == "float32" else 2
        share = matrix_engine.share_of_peak(largest.products[0], largest.dtype, item, generation)
        filled = f"; it fills {share:.0%} of the engine" if share < _FULL else ""
        return f"{flops / 1e12:.3g} TFLOP of {largest.dtype}, the largest product {shape}{filled}"
    moved = sum(each.bytes for each in operations)
    most = Counter[str]()
    for each in operations:
        most[each.name.partition(".")[2]] += each.bytes
    names = ", ".join(name for name, _ in most.most_common(MAX_COSTS))
    return f"{format_bytes(moved)} read and written by {len(operations)} operators, most by {names}"


def _explain_network(step: StepRecording) -> str:
    sizes: Counter[tuple[str, str, int]] = Counter()
    calls: Counter[tuple[str, str, int]] = Counter()
    for each in step.collectives:
        key = each.name, each.phase, len(each.ranks)
        sizes[key] += each.total_bytes
        calls[key] += 1
    if not sizes:
        return "no collective"
    ((name, phase, ranks), size), *_ = sizes.most_common(1)
    count = calls[name, phase, ranks]
    mean = format_bytes(math.ceil(size / count))
    return f"nothing is left to compute beside them; most is {name} in {phase}: {count} calls of {mean}, {ranks} ranks"
