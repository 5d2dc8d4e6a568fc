"""Memory of a card beside tensors, and whether a job fits: one threshold for plans and for reports of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpu_sim.prediction.hardware import memory_entries, usable_memory

#: "fits" with the whole reserve, "tight" with the least of it, else "no".
Verdict = Literal["fits", "tight", "no"]


@dataclass(frozen=True)
class Reserve:
    """Part of the reserve, as a range.

    Attributes:
        name: What it is.
        low: Least bytes.
        high: Most bytes.
        source: Where the range is from.
    """

    name: str
    low: int
    high: int
    source: str


def reserves(peak: int, usable: int, ranks: int) -> tuple[Reserve, ...]:
    """Return what a job needs beside its tensors: workspaces of graphs, buffers of HCCL, and fragments.

    Args:
        peak: Highest memory of tensors, in bytes.
        usable: Memory of the card that a program can use, in bytes.
        ranks: Number of ranks; one needs no buffers of HCCL.
    """
    # A larger card runs larger batches, whose workspaces are larger. A simulated one may be much smaller.
    share = usable / usable_memory("GAUDI2")
    factors = {"of the peak": peak, "of GAUDI2": share, "bytes": min(share, 1)}
    found = []
    for entry in memory_entries():
        if ranks > 1 or entry["name"] != "HCCL buffers":
            low, high = (int(end * factors[entry["unit"]]) for end in entry["range"])
            found.append(Reserve(entry["name"], low, high, entry["source"]))
    return tuple(found)


def verdict(peak: int, usable: int, ranks: int) -> Verdict:
    """Return whether a job with a peak of its tensors fits on a card; see :func:`reserves`."""
    if peak <= fitting_bytes(usable, ranks):
        return "fits"
    return "tight" if peak + sum(each.low for each in reserves(peak, usable, ranks)) <= usable else "no"


def fitting_bytes(usable: int, ranks: int) -> int:
    """Return the largest peak of tensors that fits with the whole reserve."""
    fixed = sum(each.high for each in reserves(0, usable, ranks))
    share = sum(entry["range"][1] for entry in memory_entries() if entry["unit"] == "of the peak")
    return int((usable - fixed) / (1 + share))
