"""Peaks, rates and memory of the generations, from ``hardware.json``, which names the source of each.

Memory beside tensors is a reserve: workspaces of graphs and fragments. HCCL takes its buffers before the memory that a
program can use is counted (HCL 1.21, 302 MB on GAUDI2).
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.device.config import MEMORY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: "fits" with the whole reserve, "tight" with the least of it, else "no".
Verdict = Literal["fits", "tight", "no"]

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


# A user's own figures by generation; "" for all others.
_own: Final[dict[str, dict[str, float]]] = {}


def set_figures(settings: Iterable[str] = (), path: Path | None = None) -> None:
    """Use a user's own figures in this process, in place of all earlier ones.

    Args:
        settings: Figures of every generation, such as ``"launch_seconds=1e-5"``.
        path: File with "figures", and with the "generation" that they are of, if it is only one.

    Raises:
        ValueError: If the file cannot be read, or a name is that of no figure, or one has no number.
    """
    found: dict[str, dict[str, float]] = {}
    if path is not None:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            found[data.get("generation", "")] = {name: float(value) for name, value in data["figures"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = '`--hardware` must name a file with "figures" of names and numbers'
            raise ValueError(f"{message}, got {str(path)!r} ({error})") from error
    for setting in settings:
        name, _, text = setting.partition("=")
        try:
            found.setdefault("", {})[name] = float(text)
        except ValueError as error:
            raise ValueError(f"`--set {name}` must be a number, got {text!r}") from error
    if unknown := {name for figures in found.values() for name in figures} - _names():
        names = ", ".join(sorted(_names()))
        raise ValueError(f"`--set` and `--hardware` must name one of {names}, got {min(unknown)!r}")
    _own.clear()
    _own.update(found)


@functools.cache
def _names() -> frozenset[str]:
    names = (name for name, each in _entries("GAUDI2").items() if isinstance(each, dict) and "value" in each)
    return frozenset({_MEMORY, *names}) - _OTHERS


def _own_figures(generation: str) -> Mapping[str, float]:
    return {**_own.get(generation, {}), **_own.get("", {})}


def hardware(generation: str) -> Hardware:
    """Return a generation with a user's own figures."""
    entries, own = _entries(generation), _own_figures(generation)

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


def usable_memory(generation: str, memory: int | None = None) -> int:
    """Return the bytes of a device that a program can use: its memory less what the card keeps.

    Args:
        generation: Generation of the device.
        memory: Bytes of a simulated device with another memory, which keeps the same share; None for a card's.
    """
    own = _own_figures(generation)
    total = int(own.get(_MEMORY, MEMORY_BYTES[generation]))
    reserved = int(own.get("reserved_bytes", _data()["common"]["reserved_bytes"]["value"]))
    usable = total - reserved
    return usable if memory is None else usable * memory // total


@functools.cache
def _reserve_share() -> tuple[float, float]:
    """Return the least and the most of the memory beside tensors, as shares of their peak."""
    low, high = zip(*(each["range"] for each in _data()["common"]["memory_reserves"]), strict=True)
    return sum(low), sum(high)


def with_reserve(peak: int) -> tuple[int, int]:
    """Return the least and the most memory of a job with a peak of its tensors, in bytes."""
    low, high = _reserve_share()
    return int(peak * (1 + low)), int(peak * (1 + high))


def fitting_bytes(usable: int) -> int:
    """Return the largest peak of tensors that fits with the whole reserve."""
    return int(usable / (1 + _reserve_share()[1]))


def verdict(peak: int, usable: int) -> Verdict:
    """Return whether a job with a peak of its tensors fits in the memory that a program can use."""
    if peak <= fitting_bytes(usable):
        return "fits"
    return "tight" if with_reserve(peak)[0] <= usable else "no"
