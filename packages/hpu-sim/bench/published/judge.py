"""Judge the planner's model of time by published training speeds, and write the tables of the record.

    python packages/hpu-sim/bench/published/judge.py [--write]

``recordings/`` has the steps of points.json, each as `hpu-sim plan --save` wrote it of program.py. Nothing is measured
here: the truth is what others published. Two figures are chosen by it: the share of the roofline that steps reach, with
which as many are too fast as too slow, and the factor that holds 8 in 10 of them. Each model is judged by what the
other models choose. ``--write`` writes the tables into docs/records/planner.md, and the figures into hardware.json.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import math
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction import recording_file
from hpu_sim.prediction.hardware import set_figures
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER: Final = Path(__file__).parent
RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"
HARDWARE: Final = FOLDER.parents[1] / "src/hpu_sim/data/hardware.json"
_BEGIN, _END = "<!-- judged: begin -->", "<!-- judged: end -->"
SHARES: Final = tuple(each / 100 for each in range(70, 101, 2))
#: Share of the values that a range holds, and factor within which a ratio counts as right.
_HELD: Final = 0.8
_NEAR: Final = 1.25
#: Published ratios closer to 1 say of no job that it is the faster one.
_EQUAL: Final = 1.05
#: Jobs whose speeds can be compared: 8 cards and 1, ZeRO-2 and DDP, eager and lazy mode, other batches.
PAIRS: Final = (
    ("H026", "H001"), ("H010", "H026"), ("H017", "H001"), ("H054", "H068"), ("H055", "H069"), ("H045", "H020"),
    ("H046", "H021"), ("H043", "H018"), ("H059", "H035"),
)  # fmt: skip


@dataclass(frozen=True)
class Value:
    """Published seconds of a step, and the predicted ones by the share of the roofline."""

    point: dict[str, Any]
    generation: str
    seconds: float
    predicted: dict[float, float]

    def ratio(self, share: float) -> float:
        """Return the predicted time divided by the published one."""
        return self.predicted[share] / self.seconds


def values() -> list[Value]:
    """Return all published values with their predictions."""
    found = []
    for point in json.loads((FOLDER / "points.json").read_text(encoding="utf-8"))["points"]:
        (recording,) = recording_file.load(FOLDER / "recordings" / f"{point['id']}.rec")
        # One worker of each card prepares images while the card works.
        seconds = point.get("loader_seconds", 0.0) * point["job"]["batch"]
        for generation, truth in point["seconds"].items():
            clock, predicted = Clock(recording, generation), {}
            for share in SHARES:
                set_figures([f"roofline_share={share}"])
                predicted[share] = max(copy.copy(clock).timeline.seconds, seconds)
            found.append(Value(point, generation, truth, predicted))
    return found


def choose(known: Sequence[Value]) -> tuple[float, float]:
    """Return the share with which half of the values are too fast, and the factor that holds 8 in 10 and one more."""
    share = min(SHARES, key=lambda share: abs(statistics.median(math.log(each.ratio(share)) for each in known)))
    factors = sorted(max(each.ratio(share), 1 / each.ratio(share)) for each in known)
    return share, math.ceil(100 * factors[math.ceil((len(factors) + 1) * _HELD) - 1]) / 100


def ratios(known: Sequence[Value], share: float) -> list[tuple[float, float]]:
    """Return each published and predicted ratio of two values that a plan may show."""
    of = {(each.point["id"], each.generation): each for each in known}
    pairs = [((name, "GAUDI3"), (name, "GAUDI2")) for name in dict.fromkeys(name for name, _ in of)]
    pairs += [((first, each), (second, each)) for first, second in PAIRS for each in ("GAUDI", "GAUDI2", "GAUDI3")]
    return [
        (of[first].seconds / of[second].seconds, of[first].predicted[share] / of[second].predicted[share])
        for first, second in pairs
        if first in of and second in of
    ]


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)) + "\n"


def main() -> None:
    """Judge, print, and write with `--write`."""
    share, factor = choose(known := values())
    rows, groups = [], dict[str, list[tuple[float, bool]]]()
    for model in dict.fromkeys(each.point["model"] for each in known):
        chosen, limit = choose([each for each in known if each.point["model"] != model])
        for each in (each for each in known if each.point["model"] == model):
            error, is_inside = each.ratio(chosen) - 1, 1 / limit <= each.ratio(chosen) <= limit
            for name in (each.generation, "all"):
                groups.setdefault(name, []).append((error, is_inside))
            cells = each.generation, f"{each.seconds:.4g}", f"{each.predicted[chosen]:.4g}", f"{error:+.0%}"
            rows.append((f"{each.point['id']}, {model}", *cells, "" if is_inside else "outside"))
    summary = []
    for name in sorted(groups):
        errors = [error for error, _ in groups[name]]
        shown = f"{statistics.median(map(abs, errors)):.0%}", f"{max(map(abs, errors)):.0%}"
        inside = f"{sum(is_inside for _, is_inside in groups[name])} of {len(errors)}"
        summary.append((name, *shown, f"{statistics.median(errors):+.0%}", inside))
    pairs = ratios(known, share)
    near = sum(1 / _NEAR <= found / truth <= _NEAR for truth, found in pairs)
    ranked = sum(abs(math.log(truth)) < math.log(_EQUAL) or (truth < 1) == (found < 1) for truth, found in pairs)
    head = f"{dt.datetime.now(tz=dt.timezone.utc).date()}, `python packages/hpu-sim/bench/published/judge.py --write`"
    text = "\n".join((
        f"{head}, predicted. All values choose a share of {share} and a factor of {factor}.\n",
        table(("each model by the others", "median error", "worst", "with its sign", "inside"), summary),
        f"Of {len(pairs)} ratios, {near} are within {_NEAR}, and {ranked} have the same as the faster one.\n",
        table(("point", "card", "published s", "predicted s", "error", ""), rows),
    ))  # fmt: skip
    print(text)
    if "--write" in sys.argv:
        before = RECORD.read_text(encoding="utf-8")
        start, end = before.index(_BEGIN), before.index(_END)
        RECORD.write_text(f"{before[:start]}{_BEGIN}\n\n{text}\n{before[end:]}", encoding="utf-8")
        figures = HARDWARE.read_text(encoding="utf-8")
        for name, number in (("roofline_share", share), ("spread", factor)):
            figures = re.sub(rf'("{name}": \{{"value": )[\d.]+', rf"\g<1>{number}", figures)
        counts = f'"count": {len(pairs)}, "inside": {near}, "ranked": {ranked}, "factor": {_NEAR}'
        HARDWARE.write_text(re.sub(r'("ratios": \{)"count".*?"factor": [\d.]+', rf"\g<1>{counts}", figures), "utf-8")


if __name__ == "__main__":
    main()
