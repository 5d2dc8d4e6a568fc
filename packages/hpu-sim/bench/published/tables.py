"""Record of the planner's validation: the tables of docs/records/planner.md."""

from __future__ import annotations

import datetime as dt
import math
import re
import statistics
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from model_fit import (
    COVERAGE,
    EVERY_EFFECT,
    GENERATIONS,
    MEDIAN,
    WIDTH,
    WORST,
    Effects,
    encode,
    fit,
    is_known,
    judge,
    parameters,
    predict,
    summary,
    values,
)

from hpu_sim.prediction.ratios import Ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from model_fit import Judged, Settings, Value

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


def render(
    settings: Settings, folds: Mapping[str, Settings], width: float, ratios: Sequence[Compared], residual: float
) -> str:
    """Return the generated part of the record."""
    judged = judge(folds, width)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    parts = [
        f"{today}, `python packages/hpu-sim/bench/published/fit.py --write`, predicted.\n",
        _headline(judged),
        _parameters(settings, width),
        "### Every published value\n",
        _every(judged),
        "### Ratios\n",
        _ratios(ratios, residual),
        "### Ablations\n",
        _ablations(settings),
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


def _parameters(settings: Settings, width: float) -> str:
    rows = ["| parameter | generation | fitted | range | prior range |", "|---|---|---|---|---|"]
    for each in parameters():
        value = settings[each.name, each.generation]
        slow, fast = each.ends(value, width)
        rows.append(
            f"| {each.name} | {each.generation or 'all'} | {value:.3g} | {slow:.3g} to {fast:.3g} | "
            f"{each.slow:.3g} to {each.fast:.3g} |"
        )
    return "\n".join(rows) + "\n"


def _every(judged: Sequence[Judged]) -> str:
    rows = ["| point | family | card | half | published (s) | predicted (s), not measured | error | inside |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for each in judged:
        value = each.value
        unknown = "" if is_known(value) else ", preparation by the host not known"
        rows.append(
            f"| {value.point}: {_describe(value)}{unknown} | {value.family} | {value.generation} | "
            f"{'fit' if value.is_fitted else 'judge'} | {value.seconds:.4g} | {each.middle:.4g} ({each.fast:.4g} to "
            f"{each.slow:.4g}) | {each.error:+.0%} | {'yes' if each.is_inside else 'no'} |"
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
        predicted: Prediction with the ranges of the hardware alone.
    """

    name: str
    truth: float
    predicted: Ratio

    def ends(self, residual: float) -> tuple[float, float]:
        """Return the ends of the prediction's range with what the ranges do not explain, as a factor."""
        middle = self.predicted.middle
        below, above = math.log(middle / self.predicted.low), math.log(self.predicted.high / middle)
        unexplained = math.log(residual)
        return middle * math.exp(-math.hypot(below, unexplained)), middle * math.exp(math.hypot(above, unexplained))

    def is_inside(self, residual: float) -> bool:
        """Return whether the range holds the published ratio."""
        low, high = self.ends(residual)
        return low <= self.truth <= high


def choose_residual(ratios: Sequence[Compared]) -> float:
    """Return the smallest factor beyond the ranges with which they hold the goal's share of the ratios."""
    return next(
        1 + percent / 100
        for percent in range(100)
        if statistics.mean(each.is_inside(1 + percent / 100) for each in ratios) >= COVERAGE
    )


def compared(settings: Settings, width: float) -> Iterator[Compared]:
    """Yield the ratios of published values."""
    known = {(each.point, each.generation): each for each in values() if is_known(each)}
    for (point, generation), value in known.items():
        other = known.get((point, "GAUDI2"))
        if generation == "GAUDI3" and other is not None:
            yield _compare(f"GAUDI3 / GAUDI2, {point}", value, other, settings, width)
    for first, second, name in PAIRS:
        for generation in GENERATIONS:
            pair = known.get((first, generation)), known.get((second, generation))
            if pair[0] is not None and pair[1] is not None:
                yield _compare(f"{name}, {generation}", pair[0], pair[1], settings, width)


def _compare(name: str, first: Value, second: Value, settings: Settings, width: float) -> Compared:
    """Return a ratio with all fitted parameters at the ends of their ranges, one at a time and in both predictions."""

    def times(moved: Settings) -> float:
        return predict(first, moved) / predict(second, moved)

    middle = times(settings)
    below = above = 0.0
    for each in parameters():
        key = each.name, each.generation
        logs = [math.log(times({**settings, key: end}) / middle) for end in each.ends(settings[key], width)]
        below += min(*logs, 0.0) ** 2
        above += max(*logs, 0.0) ** 2
    predicted = Ratio(middle * math.exp(-math.sqrt(below)), middle, middle * math.exp(math.sqrt(above)))
    return Compared(name, first.seconds / second.seconds, predicted)


def _ratios(ratios: Sequence[Compared], residual: float) -> str:
    rows = ["| ratio | published | predicted, not measured | error | inside |", "|---|---|---|---|---|"]
    for each in ratios:
        low, high = each.ends(residual)
        rows.append(
            f"| {each.name} | {each.truth:.3f} | {each.predicted.middle:.3f} ({low:.3f} to {high:.3f}) | "
            f"{each.predicted.middle / each.truth - 1:+.0%} | {'yes' if each.is_inside(residual) else 'no'} |"
        )
    errors = [abs(each.predicted.middle / each.truth - 1) for each in ratios]
    widths = [each.ends(residual)[1] / each.ends(residual)[0] for each in ratios]
    inside = statistics.mean(each.is_inside(residual) for each in ratios)
    rows.append(
        f"\nMedian error {statistics.median(errors):.0%}, worst {max(errors):.0%}; {inside:.0%} inside, median width "
        f"{statistics.median(widths):.2f}. Both predictions have the same fitted parameters. The ranges contain a "
        f"factor of {residual:.2f} for what the parameters do not explain, chosen so that {COVERAGE:.0%} of these "
        "ratios are inside.\n"
    )
    return "\n".join(rows)


def _ablations(settings: Settings) -> str:
    rows = ["| without | median error, parameters kept | median error, fitted again | worst, fitted again |"]
    rows.append("|---|---|---|---|")
    known = [each for each in values() if is_known(each)]
    whole = [each for each in values() if each.is_fitted]
    for name in ("nothing", *(each.name for each in fields(Effects))):
        effects = EVERY_EFFECT if name == "nothing" else replace(EVERY_EFFECT, **{name: False})
        again = settings if name == "nothing" else fit(whole, encode(settings), effects)
        errors = [
            [abs(predict(each, chosen, effects) / each.seconds - 1) for each in known] for chosen in (settings, again)
        ]
        rows.append(
            f"| {name} | {statistics.median(errors[0]):.1%} | {statistics.median(errors[1]):.1%} | "
            f"{max(errors[1]):.0%} |"
        )
    return "\n".join(rows) + "\n"


def write(path: Path, text: str) -> None:
    """Replace the generated part of the record."""
    before = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    path.write_text(pattern.sub(lambda _: f"{_BEGIN}\n\n{text}\n{_END}", before), encoding="utf-8")
