"""Trace of a card beside the predicted trace of the same program: where the model of time is wrong, the worst first.

Both are files in the Chrome format. A kernel counts for the operator that launched it, where the trace links them, else
for its own name without dtypes and numbers. Graphs are those of recipes, in the order in which they first run.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common.encoding import SCHEMA_VERSION
from hpu_sim.common.formatting import align, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_US: Final = 1e-6
_DEVICE: Final = "/device:HPU:"
_STEP: Final = "ProfilerStep#"
_ENGINES: Final = re.compile(r"MME|TPC|NIC|DMA")
# Lanes of the bridge's own traces, by a thousand.
_LANES: Final = {0: "DMA", 1: "MME", 2: "TPC", 3: "DMA", 4: "DMA", 5: "DMA", 6: "MME", 7: "TPC", 14: "NIC", 17: "NIC"}
_NOISE: Final = re.compile(r"(_(fwd|bwd|f32|f16|bf16|i32|i8|u8|hf8|f8)|\d+|_)+$")
# Names of the compiler's nodes, and the operators of torch.
_NODES: Final = {"gemm": "mm", "batch_gemm": "bmm", "spatial_convolution": "convolution", "add": "add", "mult": "mul"}


@dataclass(frozen=True)
class Difference:
    """Seconds per step of one part, on a card and predicted.

    Attributes:
        kind: "engine", "graph" or "operator".
        name: Engine, number of the graph, or operator and engine.
        card: Seconds on the card.
        predicted: Predicted seconds.
    """

    kind: str
    name: str
    card: float
    predicted: float

    @property
    def size(self) -> float:
        """Absolute difference."""
        return abs(self.card - self.predicted)


def compare(card: Path, plan: Path) -> tuple[Difference, ...]:
    """Return the differences of each kind, the largest first.

    Raises:
        ValueError: If a file is no trace, has no events of a device, or the second one was not predicted.
    """
    found, predicted = _read(card), _read(plan)
    if not predicted[0]:
        raise ValueError(
            f"`plan` must be a trace of `hpu-sim plan --trace`, got {str(plan)!r}, which was not predicted"
        )
    differences = []
    for kind in ("engine", "graph", "operator"):
        sides = [side[1][kind] for side in (found, predicted)]
        rows = [Difference(kind, name, sides[0][name], sides[1][name]) for name in {**sides[0], **sides[1]}]
        differences += sorted(rows, key=lambda row: -row.size)
    return tuple(differences)


def to_json(differences: Iterable[Difference]) -> str:
    """Return the JSON of differences."""
    rows = [asdict(each) for each in differences]
    return json.dumps({"schema_version": SCHEMA_VERSION, "differences": rows}, indent=1) + "\n"


def to_text(differences: Iterable[Difference], most: int) -> str:
    """Return tables with at most so many rows each."""
    lines = ["seconds of a step on the card, and predicted (not measured)"]
    for kind in ("engine", "graph", "operator"):
        rows = [each for each in differences if each.kind == kind][:most]
        cells = [(kind, "card", "predicted", "card / predicted"), *map(_row, rows)]
        lines += align(cells)
    return "\n".join(lines) + "\n"


def _row(each: Difference) -> tuple[str, ...]:
    share = f"{each.card / each.predicted:.2f}" if each.predicted else "-"
    return each.name, format_seconds(each.card), format_seconds(each.predicted), share


def _read(path: Path) -> tuple[bool, dict[str, defaultdict[str, float]]]:
    """Return whether a trace was predicted, and its seconds per step by kind and name."""
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        events = data["traceEvents"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no trace in the Chrome format ({error})") from error
    devices = {each["pid"] for each in events if _named(each, "process_name").startswith(_DEVICE)}
    lanes = {(each["pid"], each["tid"]): _named(each, "thread_name") for each in events if each.get("ph") == "M"}
    operators = {
        each["args"]["External id"]: each["name"]
        for each in events
        if each.get("cat") == "cpu_op" and "External id" in each.get("args", {})
    }
    steps = max(sum(str(each.get("name", "")).startswith(_STEP) for each in events), 1)
    found = {kind: defaultdict[str, float](float) for kind in ("engine", "graph", "operator")}
    graphs: dict[Any, str] = {}
    for each in sorted((e for e in events if e.get("ph") == "X" and e.get("pid") in devices), key=lambda e: e["ts"]):
        engine = _engine(lanes.get((each["pid"], each["tid"]), ""), each["tid"])
        seconds, args = each["dur"] * _US / steps, each.get("args", {})
        recipe = args.get("recipeId", args.get("recipe"))
        name = operators.get(args.get("External id"), each["name"])
        found["engine"][engine] += seconds
        found["operator"][f"{_operator(name)} ({engine})"] += seconds
        if recipe:
            found["graph"][graphs.setdefault(recipe, str(len(graphs) + 1))] += seconds
    if not found["engine"]:
        raise ValueError(f"{path} has no events of a device")
    is_predicted = any(each.get("predicted") for each in data.get("deviceProperties", ()))
    return is_predicted, found


def _named(event: Any, kind: str) -> str:
    is_name = event.get("ph") == "M" and event.get("name") == kind
    return str(event.get("args", {}).get("name", "")) if is_name else ""


def _engine(lane: str, number: Any) -> str:
    match = _ENGINES.search(lane)
    return match[0] if match else _LANES.get(number // 1000 if isinstance(number, int) else -1, "other")


def _operator(name: str) -> str:
    plain = name.partition(" and ")[0].rpartition("::")[2].rpartition(":")[2].lower()
    plain = _NOISE.sub("", plain) or plain
    return _NODES.get(plain, plain.strip("_"))
