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
    from collections.abc import Mapping

    #: Values of figures of the hardware in place of the middle of their ranges, by name.
    Moved = Mapping[str, float]

#: End of every range: all pessimistic values, or all optimistic ones. "middle" is between them.
Estimate = Literal["slow", "fast", "middle"]

#: Variable that names a file of `hpu-sim plan calibrate`.
CALIBRATION_VARIABLE: Final = "HPU_SIM_CALIBRATION"

# Its range is no error of a step.
_NOT_OF_A_STEP: Final = "compilation_seconds"

# Ranges that hold for all generations, by their names in the file and here.
_COMMON: Final = (
    "memory_efficiency", "writeout", "load_cycles", "special_cycles", "pipeline_parts", "bundle_slices",
    "kernel_seconds", "start_seconds", "trace_seconds", "launch_seconds", "graph_seconds", "sync_seconds",
    "collective_seconds", "compilation_seconds", "loader_factor",
)  # fmt: skip


@dataclass(frozen=True)
class Hardware:
    """A generation at one end of all ranges, or in their middle.

    Attributes:
        generation: Its name.
        matrix_flops: Peak of matrix products in FLOP/s, by dtype.
        matrix_efficiency: Share of the matrix engine's clock that products keep.
        writeout: Exponent of the filled share of a tile in the cycles to write it; see :mod:`matrix_engine`.
        memory_rate: Bytes per second of the memory, as far as kernels reach it.
        copy_rate: Bytes per second of the engine that transposes.
        vector_rate: Bytes per second that pass through the vector engines at a cycle per vector.
        load_cycles: Cycles per vector to load it.
        special_cycles: Cycles per vector of an operator with special functions.
        pipeline_parts: Parts of a kernel, after the first of which a reader on another engine begins.
        bundle_slices: The same where the value stays on the chip.
        kernel_seconds: Time of a kernel beside its work.
        start_seconds: Time of the device to start a graph; in eager mode, each operator is one.
        trace_seconds: Host time per operator in lazy mode.
        launch_seconds: Host time per operator in eager mode.
        graph_seconds: Host time to launch a graph.
        sync_seconds: Round trip of a host-device synchronization.
        collective_seconds: Fixed time of a collective.
        box: Devices that have links to each other: 8, and 4 of PCIe cards.
        peer_rate: Bytes per second to one other device of the box.
        outside_rate: Bytes per second to other boxes.
        compilation_seconds: Time to compile a large graph.
        loader_factor: Time of the DataLoader on the host of the cards, relative to where it was measured.
        sram_bytes: Memory on the chip.
        line_bytes: Line of the card's memory.
    """

    generation: str
    matrix_flops: Mapping[str, float]
    matrix_efficiency: float
    writeout: float
    memory_rate: float
    copy_rate: float
    vector_rate: float
    load_cycles: float
    special_cycles: float
    pipeline_parts: float
    bundle_slices: float
    kernel_seconds: float
    start_seconds: float
    trace_seconds: float
    launch_seconds: float
    graph_seconds: float
    sync_seconds: float
    collective_seconds: float
    box: int
    peer_rate: float
    outside_rate: float
    compilation_seconds: float
    loader_factor: float
    sram_bytes: int
    line_bytes: int

    @property
    def writes_back(self) -> bool:
        """Whether the memory on the chip is a cache, which writes what nobody needs any more (`brain_conf.cpp`)."""
        return self.generation == "GAUDI3"


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


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

    box = int(own["box"]["value"])
    figures = {name: end(name) for name in _COMMON}
    efficiency = figures.pop("memory_efficiency")
    return Hardware(
        generation=generation,
        matrix_flops={dtype: float(entry["value"]) for dtype, entry in own["matrix_flops"].items()},
        matrix_efficiency=end("matrix_efficiency"),
        memory_rate=efficiency * own["memory_bytes_per_second"]["value"],
        copy_rate=float(own["copy_bytes_per_second"]["value"]),
        vector_rate=float(own["vector_bytes_per_second"]["value"]),
        box=box,
        peer_rate=end("in_box_efficiency") * own["in_box_bytes_per_second"]["value"] / (box - 1),
        outside_rate=end("between_boxes_efficiency") * own["between_boxes_bytes_per_second"]["value"],
        sram_bytes=int(own["sram_bytes"]["value"]),
        line_bytes=int(own["line_bytes"]["value"]),
        **figures,
    )


def ranges(generation: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of a generation, slow end first, by their names in the file."""
    entries = {**_data()["common"], **_data()["generations"][generation]}
    return {
        name: (entry["range"][0], entry["range"][1])
        for name, entry in entries.items()
        if isinstance(entry, dict) and "range" in entry
    }


def moves(generation: str) -> dict[str, tuple[Moved, Moved]]:
    """Return the independent errors of the figures of a generation, each at its slow and at its fast end."""
    found = {**ranges(generation), **calibrated(generation)}
    return {
        name: ({name: slow}, {name: fast})
        for name, (slow, fast) in found.items()
        if slow != fast and name != _NOT_OF_A_STEP
    }


def unexplained() -> float:
    """Return the logarithm of the factor by which a step, or the ratio of two, is off beyond the ranges."""
    return math.log(_data()["common"]["unexplained"]["value"])


def highest_efficiency(generation: str) -> float:
    """Return the highest share of the matrix peak that was measured; the assumed one of GAUDI."""
    return ranges(generation)["matrix_efficiency"][1]


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
