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
from products import MEASURED, SHEET
from record import FOLDER, path, points

from hpu_sim.prediction import fusion, matrix_engine
from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.ranges import Clock, Range, ratio
from hpu_sim.prediction.recording import Operation, Product, Recording, StepRecording
from hpu_sim.prediction.time_model import mode_of, step_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        inside, width = (
            statistics.mean(each.is_inside for each in group),
            statistics.median(each.predicted.high / each.predicted.low for each in group),
        )
        rows.append((name, str(len(group)), *shares, f"{inside:.0%}", f"{width:.2f}"))
    names = ("values", "n", "median error", "90th percentile", "worst", "with its sign", "inside", "median width")
    return table(names, rows)


def every(judged: Sequence[Judged]) -> str:
    """Return each value, a row for each point."""
    cells: dict[str, dict[str, str]] = {}
    for each in judged:
        name = f"{each.point['id']}, {each.point['model']}{'' if each.is_known else '¹'}"
        predicted = f"{each.predicted.middle:.3g} ({each.predicted.low:.3g} to {each.predicted.high:.3g})"
        mark = "" if each.is_inside else "²"
        cells.setdefault(name, {})[each.generation] = f"{each.seconds:.4g}: {predicted}, {each.error:+.0%}{mark}"
    rows = [(name, *(row.get(generation, "") for generation in GENERATIONS)) for name, row in cells.items()]
    notes = "points.json has the jobs. ¹ The host's preparation is not known. ² Outside of the range.\n"
    return f"Seconds of a step: published, and predicted.\n\n{table(('point', *GENERATIONS), rows)}\n{notes}"


def ratios(judged: Sequence[Judged]) -> str:
    """Return ratios of published values, and which way they go."""
    known = {(each.point["id"], each.generation): each for each in judged if each.is_known}
    pairs = [((point, "GAUDI3"), (point, "GAUDI2"), f"GAUDI3 / GAUDI2, {point}") for point, _ in known]
    pairs += [((of, other), (to, other), f"{name}, {other}") for of, to, name in PAIRS for other in GENERATIONS]
    rows, errors, inside = [], [], []
    for of, to, name in dict.fromkeys(pairs):
        if of not in known or to not in known:
            continue
        truth = known[of].seconds / known[to].seconds
        found = ratio(clock(*of), clock(*to))
        errors.append(abs(found.middle / truth - 1))
        inside.append(found.low <= truth <= found.high)
        cells = f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})", f"{found.middle / truth - 1:+.0%}"
        rows.append((name, f"{truth:.3f}", *cells, "yes" if inside[-1] else "no"))
    text = table(("ratio", "published", "predicted, not measured", "error", "inside"), rows)
    summary = (
        f"Median error {statistics.median(errors):.0%}, worst {max(errors):.0%}; {statistics.mean(inside):.0%} inside."
    )
    return f"{text}\n{summary}\n"


def _peak_seconds(product: Product, dtype: str, item: int, generation: str, valid: float = 0.5) -> float:
    del item, valid
    return float(math.prod(product[:4]) / matrix_engine.peak(dtype, generation))


def _alone(_operations: Any, _values: Any, start: int, end: int) -> list[list[int]]:
    return [[index] for index in range(start, end)]


#: Rules that an ablation leaves out: figures of the hardware in their place, or functions.
ABLATIONS: Final[dict[str, tuple[dict[str, Any], Callable[[], contextlib.AbstractContextManager[Any]]]]] = {
    "nothing": ({}, contextlib.nullcontext),
    "tiles of products: each at the peak": ({}, lambda: mock.patch.object(matrix_engine, "seconds", _peak_seconds)),
    "power: the full clock": ({"matrix_efficiency": 1.0}, contextlib.nullcontext),
    "whole lines of rows": ({"line_bytes": 1}, contextlib.nullcontext),
    "fusion": ({}, lambda: mock.patch.object(fusion, "_fused", _alone)),
    "bundles": ({}, lambda: mock.patch.object(fusion, "_NODES", -1)),
    "overlap of dependent kernels": ({"pipeline_parts": 1.0, "bundle_slices": 1.0}, contextlib.nullcontext),
    "instructions of the vector engines": ({"load_cycles": 0.0, "special_cycles": 0.0}, contextlib.nullcontext),
    "the host": (
        dict.fromkeys(("trace_seconds", "launch_seconds", "graph_seconds", "sync_seconds"), 0.0),
        contextlib.nullcontext,
    ),
    "preparation of samples": ({"loader_factor": 0.0}, contextlib.nullcontext),
}


def ablations(judged: Sequence[Judged]) -> str:
    """Return the errors without each rule."""
    known = [each for each in judged if each.is_known]
    rows = []
    for name, (figures, context) in ABLATIONS.items():
        errors = []
        with context():
            for each in known:
                recording = recordings()[each.point["id"]]
                device = replace(hardware(each.generation, "middle"), **figures)
                seconds = step_seconds(recording.steady, device, _DEVICES, mode=mode_of(recording))
                errors.append(seconds / each.seconds - 1)
        sizes = [abs(error) for error in errors]
        median, signed = statistics.median(sizes), statistics.median(errors)
        rows.append((name, f"{median:.1%}", f"{signed:+.1%}", f"{max(sizes):.0%}"))
    return table(("without (every figure in the middle)", "median error", "with its sign", "worst"), rows)


def product_tables() -> str:
    """Return the fact sheet's products and measured ones, by our rules."""
    rows = []
    for name, product, *shares in SHEET:
        ours = (f"{matrix_engine.share_of_peak(product, 'bfloat16', 2, each):.3f}" for each in GENERATIONS)
        rows.append((name, *(f"{own} ({share:g})" for own, share in zip(ours, shares, strict=True))))
    text = table(("product, and the share of the peak by ours (by the port of the library)", *GENERATIONS), rows)
    rows = []
    for name, product, dtype, measured in MEASURED:
        rate = 2 * math.prod(product[:4]) / _measured_seconds(product, dtype)
        rows.append((name, dtype, f"{measured:.1f}", f"{rate / 1e12:.1f}", f"{rate / 1e12 / measured - 1:+.0%}"))
    names = ("product on GAUDI2, M x K x N", "dtype", "measured by others (TFLOP/s)", "predicted", "error")
    return f"{text}\n{table(names, rows)}"


def _measured_seconds(product: Product, dtype: str) -> float:
    item = 1 if dtype == "float8" else 2
    sizes = (product.rows * product.inner * item, product.inner * product.columns * item)
    reads = tuple(enumerate(sizes))
    writes = ((2, product.rows * product.columns * 2),)
    operation = Operation("aten.mm", "forward", "", dtype, 1, product[:4], reads, writes, 0, products=(product,))
    device = replace(hardware("GAUDI2", "middle"), trace_seconds=0.0, graph_seconds=0.0, start_seconds=0.0)
    return step_seconds(StepRecording([operation]), device, 1, mode="lazy")


def render() -> str:
    """Return the generated part of the record."""
    judged = judge()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    parts = [
        f"{today}, `python packages/hpu-sim/bench/published/judge.py --write`, predicted, not measured.\n",
        headline(judged),
        "### Every published value\n",
        every(judged),
        "### Ratios\n",
        ratios(judged),
        "### Without each rule\n",
        ablations(judged),
        "### Products\n",
        product_tables(),
    ]
    return "\n".join(parts)


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
