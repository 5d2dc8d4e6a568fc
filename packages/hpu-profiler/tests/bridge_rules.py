"""Tables of the traces that the published bridge (1.19.0) writes.

Each table is stated once here. Releases after 1.19 are not published: what they write is unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

JsonEvent = dict[str, Any]

DEVICE_NAME = "/device:HPU:0"
DEVICE_SORT_INDEX = 16777216
#: What is added to the process id of the system for each log of the host.
LOGS = {"Synapse Logger": 10000, "Bridge Logs": 20000, "Memory Logs": 30000}


class Lane(NamedTuple):
    """Row of the table of lanes: prefix of the engine's header, base of the thread ids, whether all are kernels."""

    header: str
    base: int
    runs_kernels: bool = False


LANES = (
    Lane("**DMA ", 0),
    Lane("**MME ", 1000, runs_kernels=True),
    Lane("**TPC ", 2000, runs_kernels=True),
    Lane("*PDMA", 3000),
    Lane("*EDMA ", 4000),
    Lane("*KDMA", 5000),
    Lane("*MME ", 6000, runs_kernels=True),
    Lane("*TPC ", 7000, runs_kernels=True),
    Lane("*PSOC", 8000),
    Lane("*SM", 9000),
    Lane("*PMMU", 10000),
    Lane("*ROTATOR", 11000),
    Lane("*ARC_FARM", 12000),
    Lane("*VIDEO_DECODER", 13000),
    Lane("*NIC ", 14000),
    Lane("**NIC ", 17000),
)


def category(lane: Lane | None, name: str) -> str:
    """Return the category of an event of an engine; of the host's calls without a lane."""
    if (lane is not None and lane.runs_kernels) or name == "DmaTranspose":
        return "Kernel"
    return "Memcpy" if name.startswith("memcpy") else "Memset" if name.startswith("memset") else "Runtime"
