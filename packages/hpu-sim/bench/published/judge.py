"""Judge the planner's model of time by published training speeds, and write the tables of the record.

    python packages/hpu-sim/bench/published/judge.py [--write]

The steps are recorded already (record.py). Nothing is fitted, and nothing is measured here: the truth is what others
published. Each value is predicted by the function that plans a user's program. ``--write`` writes the tables into
docs/records/planner.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import functools
import gzip
import json
import math
import re
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import encoding
from products import MEASURED
from record import FOLDER, path, points

from hpu_sim.prediction import fusion, matrix_engine
from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.ranges import Clock, Range, ratio
from hpu_sim.prediction.recording import Operation, Product, Recording, StepRecording
from hpu_sim.prediction.time_model import Schedule, mode_of

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"
_BEGIN, _END = "<!-- judged: begin -->", "<!-- judged: end -->"
GENERATIONS: Final = ("GAUDI", "GAUDI2", "GAUDI3")
_DEVICES: Final = 8
#: Jobs whose speeds can be compared, and what the ratio is.
PAIRS: Final = (
    ("H026", "H001", "8 cards with DDP / 1 card, Gemma 2B"),
    ("H010", "H026", "ZeRO-2 / DDP, Gemma 2B"),
    ("H017", "H001", "eager / lazy, Gemma 2B"),
    ("H054", "H068", "8 cards with DDP / 1 card, RoBERTa large"),
    ("H055", "H069", "8 cards with DDP / 1 card, RoBERTa large"),
    ("H045", "H020", "8 cards with DDP / 1 card, ViT base"),
    ("H046", "H021", "8 cards with DDP / 1 card, ViT base"),
    ("H043", "H018", "8 cards with DDP / 1 card, Swin base"),
    ("H059", "H035", "2 x 4 x 1024 tokens / 2 x 8 x 512, Llama 7B"),
)


@dataclass(frozen=True)
class Judged:
    """Published seconds of a step, and their prediction."""

    point: dict[str, Any]
    generation: str
    seconds: float
    predicted: Range

    @property
    def error(self) -> float:
        """Relative error of the middle."""
        return self.predicted.middle / self.seconds - 1

    @property
    def is_inside(self) -> bool:
        """Whether the range holds the truth."""
        return self.predicted.low <= self.seconds <= self.predicted.high

    @property
    def is_known(self) -> bool:
        """Whether all of the host's preparation of a sample is known."""
        return self.point.get("loader") not in {"audio", "features"}


@functools.cache
def recordings() -> dict[str, Recording]:
    """Return the recorded program of each point."""
    found = {}
    for point in points():
        data = json.loads(gzip.decompress(path(point).read_bytes()))
        job = point["job"]
        mode = job.get("mode", "lazy")
        precision = "bf16-true" if job.get("weights") == "bfloat16" else "bf16-mixed"
        step = encoding.from_json(data)
        seconds = point.get("loader_seconds", 0.0) * job["batch"]
        workers = point.get("workers", 0)
        step.loader_seconds, step.worker_seconds = (0.0, seconds / workers) if workers else (seconds, 0.0)
        recording = Recording(("",), 0, job.get("cards", 1), _DEVICES, precision=precision, steps=[step])
        recording.lazy, recording.compiled = mode == "lazy", mode == "compile"
        recording.parameters, recording.trainable = data["parameters"], data["trainable"]
        found[point["id"]] = recording
    return found


def judge() -> list[Judged]:
    """Return all values with their predictions."""
    return [
        Judged(point, generation, seconds, clock(point["id"], generation).range())
        for point in points()
        for generation, seconds in point["seconds"].items()
    ]


@functools.cache
def clock(point: str, generation: str) -> Clock:
    """Return the clock of a point on a generation."""
    return Clock(recordings()[point], generation)


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)) + "\n"


def headline(judged: Sequence[Judged]) -> str:
    """Return the summary by generation and class."""
    known = [each for each in judged if each.is_known]
    groups = {"host's preparation known": known}
    groups |= {f"... {name}": [each for each in known if each.generation == name] for name in GENERATIONS}
    groups["... GAUDI2 and GAUDI3"] = [each for each in known if each.generation != "GAUDI"]
    classes = dict.fromkeys(each.point["class"] for each in known)
    groups |= {f"... {name}": [each for each in known if each.point["class"] == name] for name in classes}
    groups["all"] = list(judged)
    rows = []
    for name, group in groups.items():
        errors = sorted(abs(each.error) for each in group)
        high = errors[math.ceil(0.9 * len(errors)) - 1]
        signed = statistics.median(each.error for each in group)
        shares = f"{statistics.median(errors):.0%}", f"{high:.0%}", f"{errors[-1]:.0%}", f"{signed:+.0%}"
        inside = statistics.mean(each.is_inside for each in group)
        width = statistics.median(each.predicted.high / each.predicted.low for each in group)
        rows.append((name, str(len(group)), *shares, f"{inside:.0%}", f"{width:.2f}"))
    names = ("values", "n", "median error", "90th percentile", "worst", "with its sign", "inside", "median width")
    return table(names, rows)


def every(judged: Sequence[Judged]) -> str:
    """Return each value, a row for each point."""
    cells: dict[str, dict[str, str]] = {}
    for each in judged:
        name = f"{each.point['id']}, {each.point['model']}{'' if each.is_known else '¹'}"
        mark = "" if each.is_inside else "²"
        span = f"{each.predicted.low:.3g}-{each.predicted.high:.3g}"
        cells.setdefault(name, {})[each.generation] = f"{each.seconds:.4g}: {span}, {each.error:+.0%}{mark}"
    rows = [(name, *(row.get(generation, "") for generation in GENERATIONS)) for name, row in cells.items()]
    notes = "¹ The host's preparation is not known. ² Outside of the range.\n"
    text = "Seconds of a step: published, the predicted range, the error of its middle."
    return f"{text}\n\n{table(('point', *GENERATIONS), rows)}\n{notes}"


def ratios(judged: Sequence[Judged]) -> str:
    """Return how far ratios of published values are explained, a row for each kind."""
    known = {(each.point["id"], each.generation): each for each in judged if each.is_known}
    pairs = [
        ("GAUDI3 / GAUDI2", (point, "GAUDI3"), (point, "GAUDI2")) for point in dict.fromkeys(key for key, _ in known)
    ]
    pairs += [(name, (of, each), (to, each)) for of, to, name in PAIRS for each in GENERATIONS]
    found: dict[str, list[tuple[float, bool]]] = {}
    for name, of, to in pairs:
        if of in known and to in known:
            truth = known[of].seconds / known[to].seconds
            predicted = ratio(clock(*of), clock(*to))
            is_inside = predicted.low <= truth <= predicted.high
            found.setdefault(name, []).append((predicted.middle / truth - 1, is_inside))
    found["all"] = [each for group in found.values() for each in group]
    rows = []
    for name, group in found.items():
        errors, inside = zip(*group, strict=True)
        shown = f"{statistics.median(map(abs, errors)):.0%}", f"{min(errors):+.0%} to {max(errors):+.0%}"
        rows.append((name, *shown, f"{sum(inside)} of {len(inside)}"))
    return table(("ratio", "median error", "errors", "inside"), rows)


def _peak_seconds(product: Product, dtype: str, item: int, generation: str, valid: float = 0.5) -> float:
    del item, valid
    return float(math.prod(product[:4]) / matrix_engine.peak(dtype, generation))


def _alone(_operations: Any, _values: Any, start: int, end: int) -> list[list[int]]:
    return [[index] for index in range(start, end)]


#: Rules that an ablation leaves out: figures of the hardware in their place, or what a function or constant becomes.
ABLATIONS: Final[dict[str, tuple[dict[str, Any], tuple[Any, str, Any] | None]]] = {
    "nothing": ({}, None),
    "tiles of products: each at the peak": ({}, (matrix_engine, "seconds", _peak_seconds)),
    "power: the full clock": ({"matrix_efficiency": 1.0}, None),
    "whole lines of rows": ({"line_bytes": 1}, None),
    "fusion": ({}, (fusion, "_fused", _alone)),
    "bundles": ({}, (fusion, "_NODES", -1)),
    "overlap of dependent kernels": ({"pipeline_parts": 1.0, "bundle_slices": 1.0}, None),
    "instructions of the vector engines": ({"load_cycles": 0.0, "special_cycles": 0.0}, None),
    "the host": (dict.fromkeys(("trace_seconds", "launch_seconds", "graph_seconds", "sync_seconds"), 0.0), None),
    "preparation of samples": ({"loader_factor": 0.0}, None),
}


def ablations(judged: Sequence[Judged]) -> str:
    """Return the errors without each rule."""
    known = [each for each in judged if each.is_known]
    rows = []
    for name, (figures, patch) in ABLATIONS.items():
        errors = []
        with mock.patch.object(*patch) if patch else contextlib.nullcontext():
            for each in known:
                recording = recordings()[each.point["id"]]
                device = replace(hardware(each.generation), **figures)
                seconds = Schedule(recording.steady, device, _DEVICES, mode_of(recording)).seconds()
                errors.append(seconds / each.seconds - 1)
        sizes = [abs(error) for error in errors]
        median, signed = statistics.median(sizes), statistics.median(errors)
        rows.append((name, f"{median:.1%}", f"{signed:+.1%}", f"{max(sizes):.0%}"))
    return table(("without (every figure in the middle)", "median error", "with its sign", "worst"), rows)


def products() -> str:
    """Return how far measured products are from ours."""
    rows = []
    for dtype in ("bfloat16", "float8"):
        errors = [
            2e-12 * math.prod(product[:4]) / _measured_seconds(product, dtype) / measured - 1
            for product, each, measured in MEASURED
            if each == dtype
        ]
        rows.append(
            (dtype, str(len(errors)), f"{statistics.median(errors):+.0%}", f"{min(errors):+.0%} to {max(errors):+.0%}")
        )
    return table(("products measured on GAUDI2", "n", "median error of the rate", "errors"), rows)


def _measured_seconds(product: Product, dtype: str) -> float:
    item = 1 if dtype == "float8" else 2
    reads = ((0, product.rows * product.inner * item), (1, product.inner * product.columns * item))
    writes = ((2, product.rows * product.columns * 2),)
    operation = Operation("aten.mm", "forward", "", dtype, 1, (product,), reads, writes, 0)
    device = replace(hardware("GAUDI2"), trace_seconds=0.0, graph_seconds=0.0, start_seconds=0.0)
    return Schedule(StepRecording([operation]), device, 1, "lazy").seconds()


def render() -> str:
    """Return the generated part of the record."""
    judged = judge()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    head = f"{today}, `python packages/hpu-sim/bench/published/judge.py --write`, predicted, not measured.\n"
    parts = {"Every published value": every, "Ratios": ratios, "Without each rule": ablations}
    texts = [f"### {name}\n\n{part(judged)}" for name, part in parts.items()]
    return "\n".join([head, headline(judged), *texts, products()])


def main() -> None:
    """Judge, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the record")
    options = parser.parse_args()
    text = render()
    if options.write:
        before = RECORD.read_text(encoding="utf-8")
        pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        RECORD.write_text(pattern.sub(lambda _: f"{_BEGIN}\n\n{text}\n{_END}", before), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
