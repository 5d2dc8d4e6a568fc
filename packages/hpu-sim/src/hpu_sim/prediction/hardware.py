"""Peaks and efficiencies of the generations, from ``hardware.json``, which names the source of each."""

from __future__ import annotations

import functools
import json
import math
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.device.config import MEMORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    #: Values of figures of the hardware in place of the middle of their ranges, by name.
    Moved = Mapping[str, float]

#: End of every range: all pessimistic values, or all optimistic ones. "middle" is between them.
Estimate = Literal["slow", "fast", "middle"]

#: Variable that names a file of `hpu-sim plan calibrate`.
CALIBRATION_VARIABLE: Final = "HPU_SIM_CALIBRATION"

# Its range is no error of a step.
_NOT_OF_A_STEP: Final = "compilation_seconds"
#: Standard deviations from the middle of a normal distribution to the ends of 80 % of it.
ENDS: Final = 1.28

#: Number of devices of a box, all of which are linked.
BOX: Final = 8

# Ranges that hold for all generations, and those of each, by their names in the file and here.
_COMMON: Final = (
    "vector_efficiency", "vector_instructions", "engine_overlap", "kernel_seconds", "start_seconds",
    "collective_seconds", "compilation_seconds", "sync_seconds", "loader_factor",
)  # fmt: skip
_HOST: Final = ("trace_seconds", "launch_seconds", "graph_seconds")


@dataclass(frozen=True)
class Hardware:
    """A generation at one end of all ranges, or in their middle.

    Attributes:
        matrix_flops: Peak of matrix products in FLOP/s, by dtype.
        matrix_efficiency: Share of it that products reach.
        memory_rate: Peak of the memory in bytes per second.
        vector_efficiency: Share of it that kernels reach.
        vector_rate: Bytes per second that pass through the vector engines at an instruction per vector.
        vector_instructions: Instructions per vector and operator.
        engine_overlap: Share of vector work hidden behind the matrix product before it within a graph.
        kernel_seconds: Time of a kernel beside its work.
        start_seconds: Time of the device to start a graph; in eager mode, each operator is one.
        trace_seconds: Host time per operator in lazy mode.
        launch_seconds: Host time per operator in eager mode.
        graph_seconds: Host time to launch a graph.
        sync_seconds: Round trip of a host-device synchronization.
        collective_seconds: Fixed time of a collective.
        peer_rate: Bytes per second to one other device of the box.
        outside_rate: Bytes per second to other boxes.
        compilation_seconds: Time to compile a large graph.
        loader_factor: Time of the DataLoader on the host of the cards, relative to where it was measured.
        sram_bytes: Memory on the chip.
    """

    matrix_flops: Mapping[str, float]
    matrix_efficiency: float
    memory_rate: float
    vector_efficiency: float
    vector_rate: float
    vector_instructions: float
    engine_overlap: float
    kernel_seconds: float
    start_seconds: float
    trace_seconds: float
    launch_seconds: float
    graph_seconds: float
    sync_seconds: float
    collective_seconds: float
    peer_rate: float
    outside_rate: float
    compilation_seconds: float
    loader_factor: float
    sram_bytes: int


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _fitted() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, generation and entry of the fitted figures, in the order of their deviations.

    The generation is empty if all share the figure. The deviations are a row of the Cholesky factor of the fit's
    covariance: the standard deviation of each independent error, on the scale of the fit.
    """
    for generation, entries in (("", _data()["common"]), *_data()["generations"].items()):
        for name, entry in entries.items():
            if isinstance(entry, dict) and entry.get("deviations"):
                yield name, generation, entry


def at(bounds: tuple[float, float], estimate: Estimate) -> float:
    """Return an end or the geometric middle of a range; the arithmetic one if it begins at 0."""
    slow, fast = map(float, bounds)
    if estimate == "middle":
        return math.sqrt(slow * fast) if slow * fast > 0 else (slow + fast) / 2
    return slow if estimate == "slow" else fast


def hardware(generation: str, estimate: Estimate) -> Hardware:
    """Return a generation at one end of all ranges, or in their middle, with a user's calibration."""
    return _hardware(generation, estimate, os.environ.get(CALIBRATION_VARIABLE, ""))


@functools.cache
def _hardware(generation: str, estimate: Estimate, calibration: str) -> Hardware:
    return from_ranges(generation, estimate, _calibrated(calibration, generation))


def calibrated(generation: str) -> Mapping[str, tuple[float, float]]:
    """Return the ranges that a user's calibration has narrowed.

    Raises:
        ValueError: If the file is not a calibration.
    """
    return _calibrated(os.environ.get(CALIBRATION_VARIABLE, ""), generation)


@functools.cache
def _calibrated(path: str, generation: str) -> Mapping[str, tuple[float, float]]:
    if not path:
        return {}
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict) or "ranges" not in data:
        raise ValueError(f"`{CALIBRATION_VARIABLE}` must name a file of `hpu-sim plan calibrate`, got {path!r}")
    if data["generation"] != generation:
        return {}
    return {name: (float(slow), float(fast)) for name, (slow, fast) in data["ranges"].items()}


def from_ranges(generation: str, estimate: Estimate, changed: Mapping[str, tuple[float, float]]) -> Hardware:
    """Return a generation with some ranges in place of the file's, by their names in the file."""
    common, own = _data()["common"], _data()["generations"][generation]

    def end(name: str) -> float:
        entry = own.get(name) or common[name]
        if name not in changed and estimate == "middle" and "value" in entry:
            return float(entry["value"])
        return at(changed.get(name) or entry["range"], estimate)

    return Hardware(
        matrix_flops={dtype: float(entry["value"]) for dtype, entry in own["matrix_flops"].items()},
        matrix_efficiency=end("matrix_efficiency"),
        memory_rate=float(own["memory_bytes_per_second"]["value"]),
        vector_rate=float(own["vector_bytes_per_second"]["value"]),
        peer_rate=end("in_box_efficiency") * own["in_box_bytes_per_second"]["value"] / (BOX - 1),
        outside_rate=end("between_boxes_efficiency") * own["between_boxes_bytes_per_second"]["value"],
        sram_bytes=int(own["sram_bytes"]["value"]),
        **{name: end(name) for name in _COMMON},
        **{name: end(name) * end("host_factor") for name in _HOST},
    )


def ranges(generation: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of a generation, slow end first, by their names in the file."""
    entries = {**_data()["common"], **_data()["generations"][generation]}
    return {name: (entry["range"][0], entry["range"][1]) for name, entry in entries.items() if "range" in entry}


def shift(value: float, by: float, prior: Sequence[float]) -> float:
    """Return a fitted value moved on the scale of the fit, within its prior range.

    The scale is logarithmic, but for shares, whose prior range begins at 0.
    """
    low, high = sorted(prior)
    return min(max(value + by if low == 0 else value * math.exp(by), low), high)


def moves(generation: str) -> dict[str, tuple[Moved, Moved]]:
    """Return the independent errors of the figures of a generation, by the figure that each is of.

    Each has the figures that it moves, at its slow and at its fast end. A fitted figure moves those that the fit could
    not tell apart from it, also figures of other generations: ``"matrix_efficiency GAUDI3"``.
    """
    known, fitted = calibrated(generation), list(_fitted())
    found: dict[str, tuple[Moved, Moved]] = {}
    for column, (of, owner, entry) in enumerate(fitted):
        if of in known and owner in {"", generation}:
            continue
        towards_slow = math.copysign(ENDS, entry["prior"][0] - entry["prior"][1])
        ends = [
            {
                name: shift(each["value"], sign * towards_slow * each["deviations"][column], each["prior"])
                for name, group, each in fitted[column:]
                if group in {"", generation} and name not in known
            }
            for sign in (1, -1)
        ]
        found[f"{of} {owner}".strip()] = ends[0], ends[1]
    others = {name: ends for name, ends in ranges(generation).items() if name not in {each for each, _, _ in fitted}}
    for name, (slow, fast) in {**others, **known}.items():
        if slow != fast and name != _NOT_OF_A_STEP:
            found[name] = {name: slow}, {name: fast}
    return found


def residual(name: str) -> float:
    """Return the logarithm of the factor by which a "ratio", or a step on a generation, is off beyond the ranges."""
    return math.log(_data()["common"]["residuals"][name])


def highest_efficiency(generation: str) -> float:
    """Return the highest share of the matrix peak that was measured; the assumed one of GAUDI."""
    return float(_data()["generations"][generation]["matrix_efficiency"]["prior"][1])


def memory_entries() -> list[dict[str, Any]]:
    """Return the ranges of memory beside tensors, with the texts of their sources."""
    sources = _data()["sources"]
    return [
        {**entry, "source": " ".join(sources[key] for key in entry["source"].split(", "))}
        for entry in _data()["common"]["memory_reserves"]
    ]


def usable_memory(generation: str, memory: int | None = None) -> int:
    """Return the bytes of a device that a program can use: its memory less what the card keeps.

    Args:
        generation: Generation of the device.
        memory: Bytes of a simulated device with another memory, which keeps the same share; None for a card's.
    """
    whole = MEMORY_BYTES[generation]
    usable = whole - int(_data()["common"]["reserved_bytes"]["value"])
    return usable if memory is None else usable * memory // whole
