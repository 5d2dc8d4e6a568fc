"""Figures of a user's own card in place of the ranges that hold for all cards of its generation.

They are points that ``hpu-doctor verify`` measures on the card: objects with ``id``, ``kind`` (see :data:`KINDS`),
``dtype``, ``shape`` (M, K and N of a product) or ``bytes`` (of a copied tensor, or of each rank's tensor of a
collective), ``ranks``, ``seconds``, and ``simulated`` if no card was measured. The schema of the points is
``hpu_sim/data/calibration.schema.json``. A trace of a real step shows which rule is wrong (:mod:`hpu_sim.plan.diff`).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction import matrix_engine
from hpu_sim.prediction.collectives import passes_of
from hpu_sim.prediction.hardware import from_ranges, ranges
from hpu_sim.prediction.recording import Product

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hpu_sim.prediction.hardware import Hardware

# A measured figure varies between runs.
_NOISE: Final = 1.05
# Shorter products show what their launch costs, and short collectives their fixed time.
_SHORTEST_PRODUCT: Final = 100e-6
_SHORTEST_COLLECTIVE: Final = 10


@dataclass(frozen=True)
class CalibratedRange:
    """Range of a figure before and after a calibration.

    Attributes:
        name: Its name in ``hardware.json``.
        before: Slow and fast end that hold for all cards.
        after: Those of this card.
        points: Number of measured points.
    """

    name: str
    before: tuple[float, float]
    after: tuple[float, float]
    points: int

    @property
    def is_outside(self) -> bool:
        """Whether this card is outside of the range that holds for all cards."""
        low, high = sorted(self.before)
        return max(self.after) < low or min(self.after) > high


def calibrate(points: Any, generation: str) -> tuple[CalibratedRange, ...]:
    """Return the ranges that measured points narrow.

    Args:
        points: Parsed file.
        generation: Generation of the card.

    Raises:
        ValueError: If the file has no points, or they were not measured on a card.
    """
    if not isinstance(points, list):
        raise ValueError("the file must be the list of points of `hpu-doctor verify`")  # noqa: TRY004 - of a file
    values: defaultdict[str, list[float]] = defaultdict(list)
    for name, value in _of_points(points, generation):
        values[name].append(value)
    known = ranges(generation)
    return tuple(_calibrated_range(name, known[name], each) for name, each in values.items())


def _calibrated_range(name: str, before: tuple[float, float], values: Sequence[float]) -> CalibratedRange:
    # A share of a peak is at most 1.
    most = 1.0 if name.endswith("efficiency") else math.inf
    low, high = min(min(values) / _NOISE, most), min(max(values) * _NOISE, most)
    return CalibratedRange(name, before, (low, high) if before[0] <= before[1] else (high, low), len(values))


def _of_points(points: Iterable[Mapping[str, Any]], generation: str) -> Iterator[tuple[str, float]]:
    for point in points:
        kind = point.get("kind")
        if kind not in KINDS:
            raise ValueError(f"`kind` of a point must be one of {', '.join(KINDS)}, got {kind!r}")
        if point.get("simulated"):
            raise ValueError("the points are of a simulated card: calibrate with those of a real one")
        seconds = float(point["seconds"])
        if seconds <= 0:
            raise ValueError(f"`seconds` of point {point.get('id')!r} must be positive, got {seconds}")
        name, value_of = KINDS[kind]
        value = value_of(point, seconds, generation)
        if value is not None:
            yield name, value


def _card(generation: str) -> Hardware:
    """Return a card whose memory and links reach their peaks."""
    return from_ranges(generation, dict.fromkeys(("memory_efficiency", "in_box_efficiency"), (1.0, 1.0)))


def _matmul(point: Mapping[str, Any], seconds: float, generation: str) -> float | None:
    rows, inner, columns = point["shape"]
    dtype = str(point["dtype"]).removeprefix("torch.")
    dtype = "float8" if dtype.startswith("float8") else dtype
    if dtype not in _card(generation).matrix_flops or seconds < _SHORTEST_PRODUCT:
        return None
    item = 4 if dtype == "float32" else 2
    return matrix_engine.seconds(Product(1, rows, columns, inner), dtype, item, generation) / seconds


def _bandwidth(point: Mapping[str, Any], seconds: float, generation: str) -> float:
    return 2 * float(point["bytes"]) / seconds / _card(generation).memory_rate


def _host(point: Mapping[str, Any], seconds: float, generation: str) -> float:
    del point, generation
    return seconds


def _collective(point: Mapping[str, Any], seconds: float, generation: str) -> float | None:
    card, ranks, passes = _card(generation), int(point["ranks"]), passes_of(str(point["id"]))
    if not 1 < ranks <= card.box or seconds < _SHORTEST_COLLECTIVE * card.collective_seconds:
        return None
    # A gather and a scatter move a tensor of every rank.
    total = float(point["bytes"]) * (1 if passes > 1 else ranks)
    return passes * total / ranks / (seconds - card.collective_seconds) / card.peer_rate


#: Kinds of points: the range that each of them narrows, and the function of its value.
KINDS: Final[dict[str, tuple[str, Callable[[Mapping[str, Any], float, str], float | None]]]] = {
    "matmul": ("matrix_efficiency", _matmul),
    "bandwidth": ("memory_efficiency", _bandwidth),
    "launch": ("launch_seconds", _host),
    "graph_launch": ("graph_seconds", _host),
    "host_read": ("sync_seconds", _host),
    "collective": ("in_box_efficiency", _collective),
}


def to_json(ranges: Iterable[CalibratedRange], generation: str) -> str:
    """Return the file that ``HPU_SIM_CALIBRATION`` names."""
    found = {each.name: each.after for each in ranges}
    return json.dumps({"schema_version": 1, "generation": generation, "ranges": found}, indent=1) + "\n"
