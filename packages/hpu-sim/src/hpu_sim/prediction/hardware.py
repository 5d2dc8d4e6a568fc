"""Peaks and rates of the generations, from ``hardware.json``, which names the source of each."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.config import MEMORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Variable that names a file of figures, as `--hardware` does.
CALIBRATION_VARIABLE: Final = "HPU_SIM_CALIBRATION"

# Memory of a card, which is no figure of the file.
_MEMORY: Final = "memory_bytes"
# Figures that are attributes of :class:`Hardware` as they are.
_SECONDS: Final = (
    "kernel_seconds", "start_seconds", "trace_seconds", "launch_seconds", "graph_seconds", "sync_seconds",
    "collective_seconds",
)  # fmt: skip
# Figures that are of no card.
_OTHERS: Final = frozenset({"spread", "ratios", "first_steps_seconds"})


@dataclass(frozen=True)
class Hardware:
    """Figures of a generation.

    Attributes:
        peaks: Stated peak of matrix products in FLOP/s, by dtype.
        matrix_efficiency: Share of it that steps reach.
        memory_rate: Bytes per second of the memory, as far as steps reach it.
        kernel_seconds: Time to start and end a kernel.
        start_seconds: Time of the device to start a graph; in eager mode, each operator is one.
        trace_seconds: Host time per operator in lazy mode.
        launch_seconds: Host time per operator in eager mode.
        graph_seconds: Host time to launch a graph.
        sync_seconds: Round trip of a host-device synchronization.
        collective_seconds: Fixed time of a collective.
        box: Devices that have links to each other: 8, and 4 of PCIe cards.
        peer_rate: Bytes per second to one other device of the box.
        outside_rate: Bytes per second to other boxes.
    """

    peaks: Mapping[str, float]
    matrix_efficiency: float
    memory_rate: float
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

    def peak(self, dtype: str) -> float:
        """Return the stated peak of a dtype; one without an entry computes as float32."""
        return self.peaks.get(dtype) or self.peaks["float32"]


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _entries(generation: str) -> dict[str, Any]:
    """Return the entries of a generation by name: those of all generations, and its own."""
    return {**_data()["common"], **_data()["generations"][generation]}


_given: Final[dict[str, float]] = {}


def set_figures(settings: Iterable[str]) -> None:
    """Set figures of every generation in this process, such as ``"launch_seconds=1e-5"``, in place of the file's.

    Raises:
        ValueError: If one names no figure, or has no number.
    """
    _given.clear()
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in _names():
            raise ValueError(f"`--set` must name one of {', '.join(sorted(_names()))}, got {name!r}")
        try:
            _given[name] = float(text)
        except ValueError as error:
            raise ValueError(f"`--set {name}` must be a number, got {text!r}") from error


@functools.cache
def _names() -> frozenset[str]:
    names = (name for name, each in _entries("GAUDI2").items() if isinstance(each, dict) and "value" in each)
    return frozenset({_MEMORY, *names}) - _OTHERS


def own_figures(generation: str) -> Mapping[str, float]:
    """Return a user's own figures: of the file that ``HPU_SIM_CALIBRATION`` names, and of :func:`set_figures`.

    Raises:
        ValueError: If the file has no figures.
    """
    path = os.environ.get(CALIBRATION_VARIABLE, "")
    return {**(_read(path, generation) if path else {}), **_given}


@functools.cache
def _read(path: str, generation: str) -> Mapping[str, float]:
    """Return the figures of a file; none if it is of another generation."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        found = {name: float(value) for name, value in data["figures"].items()}
        of = data.get("generation", generation)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'`--hardware` or `{CALIBRATION_VARIABLE}` must name a file with "figures" of names and numbers, '
            f"got {path!r} ({error})"
        ) from error
    if unknown := found.keys() - _names():
        raise ValueError(f"{path}: {min(unknown)!r} is no figure; they are {', '.join(sorted(_names()))}")
    return found if of == generation else {}


def hardware(generation: str) -> Hardware:
    """Return a generation with a user's own figures."""
    entries, own = _entries(generation), own_figures(generation)

    def figure(name: str) -> float:
        return own[name] if name in own else float(entries[name]["value"])

    box = int(figure("box"))
    share = figure("roofline_share")
    return Hardware(
        peaks={dtype: float(entry["value"]) for dtype, entry in entries["matrix_flops"].items()},
        matrix_efficiency=share * figure("matrix_efficiency"),
        memory_rate=share * figure("memory_efficiency") * figure("memory_bytes_per_second"),
        box=box,
        peer_rate=figure("in_box_efficiency") * figure("in_box_bytes_per_second") / max(box - 1, 1),
        outside_rate=figure("between_boxes_efficiency") * figure("between_boxes_bytes_per_second"),
        **{name: figure(name) for name in _SECONDS},
    )


def spread() -> float:
    """Return the factor by which a step may be shorter or longer than predicted."""
    return float(_data()["common"]["spread"]["value"])


def published_ratios() -> dict[str, float]:
    """Return how many ratios of published speeds were within a factor of the predicted one, and ranked rightly."""
    return dict(_data()["common"]["ratios"])


def first_steps_seconds(generation: str) -> tuple[float, float]:
    """Return the fewest and the most seconds that the first steps of published runs took beyond later ones."""
    slow, fast = _entries(generation)["first_steps_seconds"]["range"]
    return float(fast), float(slow)


def reserve_share() -> tuple[float, float]:
    """Return the least and the most of the memory beside tensors, as shares of their peak."""
    low, high = zip(*(each["range"] for each in _data()["common"]["memory_reserves"]), strict=True)
    return sum(low), sum(high)


def usable_memory(generation: str, memory: int | None = None) -> int:
    """Return the bytes of a device that a program can use: its memory less what the card keeps.

    Args:
        generation: Generation of the device.
        memory: Bytes of a simulated device with another memory, which keeps the same share; None for a card's.
    """
    own = own_figures(generation)
    total = int(own.get(_MEMORY, MEMORY_BYTES[generation]))
    reserved = int(own.get("reserved_bytes", _data()["common"]["reserved_bytes"]["value"]))
    usable = total - reserved
    return usable if memory is None else usable * memory // total
