"""Peaks and efficiencies of the generations, from ``hardware.json``, which names the source of each."""

from __future__ import annotations

import functools
import json
import math
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.config import MEMORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Variable that names a file of `hpu-sim plan calibrate`.
CALIBRATION_VARIABLE: Final = "HPU_SIM_CALIBRATION"

# Memory of a card, which is no figure of the file.
_MEMORY: Final = "memory_bytes"

# Ranges that hold for all generations, by their names in the file and here.
_COMMON: Final = (
    "memory_efficiency", "writeout", "load_cycles", "special_cycles", "pipeline_parts", "bundle_slices",
    "kernel_seconds", "start_seconds", "trace_seconds", "launch_seconds", "graph_seconds", "sync_seconds",
    "collective_seconds", "loader_factor",
)  # fmt: skip


@dataclass(frozen=True)
class Hardware:
    """Figures of a generation, each in the middle of its range.

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


def _entries(generation: str) -> dict[str, Any]:
    """Return the entries of a generation by name: those of all generations, and its own."""
    return {**_data()["common"], **_data()["generations"][generation]}


def _middle(slow: float, fast: float) -> float:
    """Return the geometric middle of a range; the arithmetic one if it begins at 0."""
    return math.sqrt(slow * fast) if slow * fast > 0 else (slow + fast) / 2


def hardware(generation: str) -> Hardware:
    """Return a generation with a user's own figures."""
    return from_ranges(generation, calibrated(generation))


_given: Final[dict[str, tuple[float, float]]] = {}


def give_figures(settings: Iterable[str]) -> None:
    """Set figures of every generation in this process, in place of the file's.

    Args:
        settings: Such as ``"launch_seconds=1e-5"``, or ``"launch_seconds=2e-5:1e-5"`` for a range, slow end first.

    Raises:
        ValueError: If one names no figure, or has no number.
    """
    _given.clear()
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in _names():
            raise ValueError(f"`--set` must name one of {', '.join(sorted(_names()))}, got {name!r}")
        try:
            ends = [float(each) for each in text.split(":")]
        except ValueError as error:
            raise ValueError(f"`--set {name}` must be a number, or two with a colon, got {text!r}") from error
        _given[name] = ends[0], ends[-1]


@functools.cache
def _names() -> frozenset[str]:
    names = (
        name for name, each in _entries("GAUDI2").items() if isinstance(each, dict) and {"range", "value"} & each.keys()
    )
    return frozenset({_MEMORY, *names} - {"unexplained"})


def calibrated(generation: str) -> Mapping[str, tuple[float, float]]:
    """Return a user's own figures: of the file that ``HPU_SIM_CALIBRATION`` names, and of :func:`give_figures`.

    Raises:
        ValueError: If the file has no figures.
    """
    return {**_calibrated(os.environ.get(CALIBRATION_VARIABLE, ""), generation), **_given}


@functools.cache
def _calibrated(path: str, generation: str) -> Mapping[str, tuple[float, float]]:
    if not path:
        return {}
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: (float(slow), float(fast)) for name, (slow, fast) in data["ranges"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"`--hardware` or `{CALIBRATION_VARIABLE}` must name a file of `hpu-sim plan calibrate`, or one with "
            f'"ranges" of names and two numbers each, got {path!r} ({error})'
        ) from error
    if unknown := found.keys() - _names():
        raise ValueError(f"{path}: {min(unknown)!r} is no figure; they are {', '.join(sorted(_names()))}")
    return found if data.get("generation", generation) == generation else {}


def from_ranges(generation: str, changed: Mapping[str, tuple[float, float]]) -> Hardware:
    """Return a generation with some figures in place of the file's, by their names in the file."""
    entries = _entries(generation)

    def end(name: str) -> float:
        entry = entries[name]
        if name in changed:
            return _middle(*changed[name])
        return float(entry["value"]) if "value" in entry else _middle(*entry["range"])

    box = int(end("box"))
    figures = {name: end(name) for name in _COMMON}
    efficiency = figures.pop("memory_efficiency")
    return Hardware(
        generation=generation,
        matrix_flops={dtype: float(entry["value"]) for dtype, entry in entries["matrix_flops"].items()},
        matrix_efficiency=end("matrix_efficiency"),
        memory_rate=efficiency * end("memory_bytes_per_second"),
        copy_rate=end("copy_bytes_per_second"),
        vector_rate=end("vector_bytes_per_second"),
        box=box,
        peer_rate=end("in_box_efficiency") * end("in_box_bytes_per_second") / max(box - 1, 1),
        outside_rate=end("between_boxes_efficiency") * end("between_boxes_bytes_per_second"),
        sram_bytes=int(end("sram_bytes")),
        line_bytes=int(end("line_bytes")),
        **figures,
    )


def ranges(generation: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of a generation, slow end first, by their names in the file."""
    return {
        name: (entry["range"][0], entry["range"][1])
        for name, entry in _entries(generation).items()
        if isinstance(entry, dict) and "range" in entry
    }


def uncertain(generation: str) -> dict[str, tuple[float, float]]:
    """Return the ranges of the figures of a step that are not known, slow end first; their errors are independent."""
    found = {**ranges(generation), **calibrated(generation)}
    return {name: ends for name, ends in found.items() if ends[0] != ends[1]}


def cause_of(name: str, generation: str) -> str:
    """Return what a figure stands for; the name itself of what is no figure."""
    return str(_entries(generation).get(name, {}).get("cause", name))


def own_figures(generation: str) -> frozenset[str]:
    """Return the names of the figures that a generation has for itself."""
    return frozenset(_data()["generations"][generation])


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
    known = calibrated(generation)
    whole = int(known.get(_MEMORY, (MEMORY_BYTES[generation],))[0])
    reserved = int(known.get("reserved_bytes", (_data()["common"]["reserved_bytes"]["value"],))[0])
    usable = whole - reserved
    return usable if memory is None else usable * memory // whole
