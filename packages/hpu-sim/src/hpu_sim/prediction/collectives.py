"""Time of collectives by latency and bandwidth, in the box and between boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.prediction.hardware import Hardware
    from hpu_sim.prediction.recording import Collective

# Those that pass over the data twice. A reduction to all ranks is a scatter and a gather. A broadcast from one rank
# first scatters its parts, which the others then exchange, and a reduction to one rank is the reverse.
_TWO_PASSES: Final = frozenset({"allreduce", "allreduce_coalesced", "broadcast", "reduce"})
# One rank sends the whole tensor to one other.
_POINT_TO_POINT: Final = frozenset({"send", "recv"})


def collective_seconds(collective: Collective, devices: int, hardware: Hardware) -> float:
    """Return the time of a collective.

    Within a box every pair of devices has its own links, over which each sends its parts in one hop (HCL 1.21,
    ``collective_states.cpp``). A group over several boxes first works within each box. Every device then sends its
    share between boxes.
    """
    ranks = len(collective.ranks)
    if ranks == 1:
        return 0.0
    boxes = len({rank // min(devices, hardware.box) for rank in collective.ranks})
    size = collective.total_bytes
    if collective.name in _POINT_TO_POINT:
        return hardware.collective_seconds + size / (hardware.outside_rate if boxes > 1 else hardware.peer_rate)
    inside = ranks // boxes
    passes = 2 if collective.name in _TWO_PASSES else 1
    seconds = hardware.collective_seconds
    if inside > 1:
        # (inside - 1) / inside of the data over (inside - 1) links.
        seconds += passes * size / inside / hardware.peer_rate
    if boxes > 1:
        seconds += hardware.collective_seconds
        seconds += passes * (boxes - 1) / boxes * size / inside / hardware.outside_rate
    return seconds
