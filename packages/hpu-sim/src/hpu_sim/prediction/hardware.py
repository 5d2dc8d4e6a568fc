"""Peaks and efficiencies of the generations, from ``hardware.json``, which names the source of each."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal

from hpu_sim.device.config import MEMORY_BYTES

#: End of every range: all pessimistic values, or all optimistic ones.
Estimate = Literal["slow", "fast"]

_POSITIONS: Final = {"slow": 0, "fast": 1}
#: Number of devices of a box, all of which are linked.
BOX: Final = 8


@dataclass(frozen=True)
class Hardware:
    """A generation at one end of all ranges.

    Attributes:
        matrix_flops: Peak of matrix products in FLOP/s, by dtype.
        matrix_efficiency: Share of it that large products reach.
        step_overhead: Factor of the kernels' time in a whole step.
        memory_rate: Peak of the memory in bytes per second.
        vector_efficiency: Share of it that element-wise operators reach.
        engine_overlap: Share of vector work hidden behind matrix products within a graph.
        launch_seconds: Host time per operator in eager mode.
        sync_seconds: Round trip of a host-device synchronization.
        collective_seconds: Fixed time of a collective.
        peer_rate: Bytes per second to one other device of the box.
        outside_rate: Bytes per second to other boxes.
        compilation_seconds: Time to compile a large graph.
    """

    matrix_flops: dict[str, float]
    matrix_efficiency: float
    step_overhead: float
    memory_rate: float
    vector_efficiency: float
    engine_overlap: float
    launch_seconds: float
    sync_seconds: float
    collective_seconds: float
    peer_rate: float
    outside_rate: float
    compilation_seconds: float


@functools.cache
def _data() -> dict[str, Any]:
    text = resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@functools.cache
def hardware(generation: str, estimate: Estimate) -> Hardware:
    """Return a generation at one end of all ranges."""
    common, own = _data()["common"], _data()["generations"][generation]
    position = _POSITIONS[estimate]

    def end(entry: dict[str, Any]) -> float:
        return float(entry["range"][position])

    in_box = end(common["in_box_efficiency"]) * own["in_box_bytes_per_second"]["value"]
    outside = end(common["between_boxes_efficiency"]) * own["between_boxes_bytes_per_second"]["value"]
    return Hardware(
        matrix_flops={dtype: float(entry["value"]) for dtype, entry in own["matrix_flops"].items()},
        matrix_efficiency=end(own["matrix_efficiency"]),
        step_overhead=end(own["step_overhead"]),
        memory_rate=float(own["memory_bytes_per_second"]["value"]),
        vector_efficiency=end(common["vector_efficiency"]),
        engine_overlap=end(common["engine_overlap"]),
        launch_seconds=end(common["launch_seconds"]),
        sync_seconds=end(common["sync_seconds"]),
        collective_seconds=end(common["collective_seconds"]),
        peer_rate=in_box / (BOX - 1),
        outside_rate=outside,
        compilation_seconds=end(common["compilation_seconds"]),
    )


def usable_memory(generation: str) -> int:
    """Return the bytes of a device that a program can use: its memory less what the card keeps."""
    return MEMORY_BYTES[generation] - int(_data()["common"]["reserved_bytes"]["value"])
