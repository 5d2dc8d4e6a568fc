"""Record of the planner's validation: the tables of docs/records/planner.md."""

from __future__ import annotations

import datetime as dt
import math
import re
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from model_fit import (
    COVERAGE,
    GENERATIONS,
    MEDIAN,
    WIDTH,
    WORST,
    holds,
    is_known,
    judge,
    range_of,
    summary,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from model_fit import Fit, Judged, Value

    from hpu_sim.prediction.ranges import Range

_BEGIN, _END = "<!-- fitted: begin -->", "<!-- fitted: end -->"
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


def render(folds: Mapping[str, Fit], ratios: Sequence[Compared], residuals: Mapping[str, float]) -> str:
    """Return the generated part of the record."""
    judged = judge(folds, residuals)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    parts = [
        f"{today}, `python packages/hpu-sim/bench/published/fit.py --write`, predicted.\n",
        _headline(judged),
        "### Published values outside of their ranges\n",
        _outside(judged),
        "### Ratios\n",
        _ratios(ratios, residuals["ratio"]),
    ]
    return "\n".join(parts)


def _headline(judged: Sequence[Judged]) -> str:
    names = (
        "values",
        "n",
        "median error",
        "90th percentile",
        "worst",
        "inside",
        "median width",
        "inside, width <= 1.5",
    )
    rows = [f"| {' | '.join(names)} |", "|---|---|---|---|---|---|---|---|"]
    known = [each for each in judged if is_known(each.value)]
    groups = [("host's preparation known", known)]
    groups += [(f"... {name}", [each for each in known if each.value.generation == name]) for name in GENERATIONS]
    groups += [("... not in the fitted half", [each for each in known if not each.value.is_fitted])]
    groups += [("all", list(judged))]
    for name, group in groups:
        found = summary(group)
        rows.append(
            f"| {name} | {found['values']:.0f} | {found['median']:.0%} | {found['p90']:.0%} | {found['worst']:.0%} | "
            f"{found['inside']:.0%} | {found['width']:.2f} | {found['narrow']:.0%} |"
        )
    rows.append(
        f"\nGoals: median at most {MEDIAN:.0%}, none above {WORST:.0%}, {COVERAGE:.0%} inside ranges of at most "
        f"{WIDTH}.\n"
    )
    return "\n".join(rows)


def _outside(judged: Sequence[Judged]) -> str:
    """Return the published values that are outside of their ranges."""
    rows = ["| point | card | published (s) | predicted (s), not measured | error |", "|---|---|---|---|---|"]
    for each in judged:
        value, predicted = each.value, each.predicted
        if not each.is_inside:
            unknown = "" if is_known(value) else ", preparation by the host not known"
            rows.append(
                f"| {value.point}: {value.family}, {_describe(value)}{unknown} | {value.generation} | "
                f"{value.seconds:.4g} | {predicted.low:.4g} to {predicted.high:.4g} | {each.error:+.0%} |"
            )
    return "\n".join(rows) + "\n"


def _describe(value: Value) -> str:
    job = value.job
    size = f"{job.batch} x {job.length}" if job.length else str(job.batch)
    words = [
        f"{job.accumulate} x {size}" if job.accumulate > 1 else size,
        {"all": "", "head": "head only"}.get(job.train, job.train),
        f"{job.cards} cards" if job.cards > 1 else "1 card",
        f"ZeRO-{job.zero}" if job.zero else "",
        "float8" if job.float8 else "",
        "recomputed" if job.recompute else "",
        job.mode,
    ]
    return ", ".join(word for word in words if word)


@dataclass(frozen=True)
class Compared:
    """Ratio of two published values.

    Attributes:
        name: What is compared.
        truth: Published ratio.
        predicted: Prediction, with the ranges of the hardware alone.
    """

    name: str
    truth: float
    predicted: Range


def compared(found: Fit) -> Iterator[Compared]:
    """Yield the ratios of published values."""
    known = {(each.point, each.generation): each for each in values() if is_known(each)}
    pairs = [((point, "GAUDI3"), (point, "GAUDI2"), f"GAUDI3 / GAUDI2, {point}") for point, _ in known]
    pairs += [
        ((first, generation), (second, generation), f"{name}, {generation}")
        for first, second, name in PAIRS
        for generation in GENERATIONS
    ]
    for of, to, name in dict.fromkeys(pairs):
        if of in known and to in known:
            first, second = known[of], known[to]
            yield Compared(name, first.seconds / second.seconds, range_of([first, second], found, 0.0))


def _ratios(ratios: Sequence[Compared], residual: float) -> str:
    rows = ["| ratio | published | predicted, not measured | error |", "|---|---|---|---|"]
    errors, widths, inside = [], [], []
    for each in ratios:
        found, unexplained = each.predicted, math.log(residual)
        low = found.middle * math.exp(-math.hypot(math.log(found.middle / found.low), unexplained))
        high = found.middle * math.exp(math.hypot(math.log(found.high / found.middle), unexplained))
        errors.append(found.middle / each.truth - 1)
        widths.append(high / low)
        inside.append(holds(found, each.truth, residual))
        rows.append(
            f"| {each.name} | {each.truth:.3f} | {low:.3f} to {high:.3f}{'' if inside[-1] else ', outside'} | "
            f"{errors[-1]:+.0%} |"
        )
    sizes = [abs(error) for error in errors]
    rows.append(
        f"\nMedian error {statistics.median(sizes):.0%}, worst {max(sizes):.0%}; {statistics.mean(inside):.0%} inside, "
        f"median width {statistics.median(widths):.2f}. Both predictions have the same fitted parameters. The ranges "
        f"contain a factor of {residual:.2f} for what the parameters do not explain, chosen so that {COVERAGE:.0%} of "
        "these ratios are inside.\n"
    )
    return "\n".join(rows)


def write(path: Path, text: str) -> None:
    """Replace the generated part of the record."""
    before = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    path.write_text(pattern.sub(lambda _: f"{_BEGIN}\n\n{text}\n{_END}", before), encoding="utf-8")
