"""Time of collectives by latency and bandwidth, in the box and between boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.prediction.hardware import Hardware
    from hpu_sim.prediction.recording import Collective

# Passes over the data: a reduction to all ranks is a scatter and a gather.
_TWO_PASSES: Final = frozenset({"allreduce", "allreduce_coalesced"})


def collective_seconds(collective: Collective, devices: int, hardware: Hardware) -> float:
    """Return the time of a collective.

    Within a box every pair of devices has its own links. A group over several boxes first works within each box. Every
    device then sends its share between boxes.
    """
    ranks = len(collective.ranks)
    if ranks == 1:
        return 0.0
    boxes = len({rank // devices for rank in collective.ranks})
    inside = ranks // boxes
    passes = 2 if collective.name in _TWO_PASSES else 1
    size = collective.total_bytes
    seconds = hardware.collective_seconds
    if inside > 1:
        # (inside - 1) / inside of the data over (inside - 1) links.
        seconds += passes * size / inside / hardware.peer_rate
    if boxes > 1:
        seconds += hardware.collective_seconds
        seconds += passes * (boxes - 1) / boxes * size / inside / hardware.outside_rate
    return seconds
