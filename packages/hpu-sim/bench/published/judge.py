"""Judge the planner's model of time by published training speeds, and write the tables of the record.

    python packages/hpu-sim/bench/published/judge.py [--write]

``recordings/`` has the steps of points.json, each as `hpu-sim plan --save` wrote it of program.py. Nothing is measured
here: the truth is what others published. One factor is chosen, that of ranges: so that 8 in 10 of the values of every
other model are inside. The others judge it. ``--write`` writes the tables into docs/records/planner.md, and the factor
and what is known of ratios into hardware.json.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import re
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction import recording_file
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER: Final = Path(__file__).parent
RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"
HARDWARE: Final = FOLDER.parents[1] / "src/hpu_sim/data/hardware.json"
_BEGIN, _END = "<!-- judged: begin -->", "<!-- judged: end -->"
GENERATIONS: Final = ("GAUDI", "GAUDI2", "GAUDI3")
#: Share of the values that a range holds, and factor within which a ratio counts as right.
_SHARE: Final = 0.8
_NEAR: Final = 1.25
#: Published ratios closer to 1 say of no job that it is the faster one.
_EQUAL: Final = 1.05
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
    """Published seconds of a step, and their prediction: without the factor of ranges, the fast and the slow end."""

    point: dict[str, Any]
    generation: str
    is_chosen: bool
    seconds: float
    fast: float
    predicted: float
    slow: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.seconds - 1

    @property
    def needed(self) -> float:
        """Smallest factor with which the range holds the truth."""
        return max(self.fast / self.seconds, self.seconds / self.slow, 1.0)


def judge() -> list[Judged]:
    """Return all values with their predictions."""
    points = json.loads((FOLDER / "points.json").read_text(encoding="utf-8"))["points"]
    models = list(dict.fromkeys(each["model"] for each in points))
    found = []
    for point in points:
        (recording,) = recording_file.load(FOLDER / "recordings" / f"{point['id']}.rec")
        # One worker of each card prepares images while the card works.
        seconds = point.get("loader_seconds", 0.0) * point["job"]["batch"]
        recording.steps[-1] = replace(recording.steady, worker_seconds=seconds)
        for generation, truth in point["seconds"].items():
            clock = Clock(recording, generation)
            fast, middle, slow = (clock.timeline(end).seconds for end in ("fast", "middle", "slow"))
            is_chosen = models.index(point["model"]) % 2 == 0
            found.append(Judged(point, generation, is_chosen, truth, fast, middle, slow))
    return found


def factor_of(judged: Iterable[Judged]) -> float:
    """Return the smallest factor, in hundredths, with which 8 in 10 of these values, and one more, are inside."""
    needed = sorted(each.needed for each in judged)
    return math.ceil(100 * needed[math.ceil((len(needed) + 1) * _SHARE) - 1]) / 100


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)) + "\n"


def headline(judged: Sequence[Judged], factor: float) -> str:
    """Return the summary by half and generation."""
    groups = {
        "models by which the factor was chosen": [each for each in judged if each.is_chosen],
        "the other models": [each for each in judged if not each.is_chosen],
        **{name: [each for each in judged if each.generation == name] for name in GENERATIONS},
        "all": list(judged),
    }
    rows = []
    for name, group in groups.items():
        errors = [each.error for each in group]
        sizes = list(map(abs, errors))
        inside = sum(each.needed <= factor for each in group)
        width = statistics.median(each.slow / each.fast * factor**2 for each in group)
        shares = f"{statistics.median(sizes):.0%}", f"{max(sizes):.0%}", f"{statistics.median(errors):+.0%}"
        rows.append((name, str(len(group)), *shares, f"{inside} of {len(group)}", f"{width:.2f}"))
    return table(("values", "n", "median error", "worst", "with its sign", "inside", "median width"), rows)


def every(judged: Sequence[Judged], factor: float) -> str:
    """Return each value, a row for each point."""
    cells: dict[str, dict[str, str]] = {}
    for each in judged:
        mark = "" if each.needed <= factor else "¹"
        span = f"{each.fast / factor:.3g}-{each.slow * factor:.3g}"
        row = cells.setdefault(f"{each.point['id']}, {each.point['model']}{'' if each.is_chosen else '²'}", {})
        row[each.generation] = f"{each.seconds:.4g}: {span}, {each.error:+.0%}{mark}"
    rows = [(name, *(row.get(generation, "") for generation in GENERATIONS)) for name, row in cells.items()]
    text = "Seconds of a step: published, the predicted range, the error of the predicted time."
    return (
        f"{text}\n\n{table(('point', *GENERATIONS), rows)}\n¹ Outside of the range. ² Not looked at in choosing it.\n"
    )


@dataclass(frozen=True)
class Ratio:
    """Published and predicted ratio of two steps."""

    name: str
    truth: float
    predicted: float

    @property
    def is_near(self) -> bool:
        """Whether the prediction is within a factor of the truth."""
        return 1 / _NEAR <= self.predicted / self.truth <= _NEAR

    @property
    def is_ranked(self) -> bool:
        """Whether the faster of the two is the predicted one, or they are about equal."""
        return abs(math.log(self.truth)) < math.log(_EQUAL) or (self.truth < 1) == (self.predicted < 1)


def ratios(judged: Sequence[Judged]) -> list[Ratio]:
    """Return all ratios of two published values that a plan may show."""
    known = {(each.point["id"], each.generation): each for each in judged}
    pairs = [("GAUDI3 / GAUDI2", (each, "GAUDI3"), (each, "GAUDI2")) for each in dict.fromkeys(key for key, _ in known)]
    pairs += [(name, (of, each), (to, each)) for of, to, name in PAIRS for each in GENERATIONS]
    return [
        Ratio(name, known[of].seconds / known[to].seconds, known[of].predicted / known[to].predicted)
        for name, of, to in pairs
        if of in known and to in known
    ]


def ratio_table(found: Sequence[Ratio]) -> str:
    """Return how far ratios of published values are explained, a row for each kind."""
    rows = []
    for name in (*dict.fromkeys(each.name for each in found), "all"):
        group = [each for each in found if name in {each.name, "all"}]
        errors = [each.predicted / each.truth - 1 for each in group]
        shown = f"{statistics.median(map(abs, errors)):.0%}", f"{min(errors):+.0%} to {max(errors):+.0%}"
        counts = (sum(each.is_near for each in group), sum(each.is_ranked for each in group))
        rows.append((name, *shown, *(f"{count} of {len(group)}" for count in counts)))
    return table(("ratio", "median error", "errors", f"within {_NEAR}", "faster one"), rows)


def main() -> None:
    """Judge, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the record and hardware.json")
    options = parser.parse_args()
    judged = judge()
    factor = factor_of(each for each in judged if each.is_chosen)
    found = ratios(judged)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    head = f"{today}, `python packages/hpu-sim/bench/published/judge.py --write`, predicted. Factor"
    parts = (
        f"{head} of ranges: {factor}.\n",
        headline(judged, factor),
        f"### Every published value\n\n{every(judged, factor)}",
        f"### Ratios\n\n{ratio_table(found)}",
    )
    text = "\n".join(parts)
    print(text)
    if options.write:
        before = RECORD.read_text(encoding="utf-8")
        pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
        RECORD.write_text(pattern.sub(lambda _: f"{_BEGIN}\n\n{text}\n{_END}", before), encoding="utf-8")
        counts = f'"count": {len(found)}, "inside": {sum(each.is_near for each in found)}, '
        counts += f'"ranked": {sum(each.is_ranked for each in found)}, "factor": {_NEAR}'
        figures = HARDWARE.read_text(encoding="utf-8")
        figures = re.sub(r'("unexplained": \{"value": )[\d.]+', rf"\g<1>{factor}", figures)
        figures = re.sub(r'("ratios": \{)"count": .*?"factor": [\d.]+', rf"\g<1>{counts}", figures)
        HARDWARE.write_text(figures, encoding="utf-8")


if __name__ == "__main__":
    main()
