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


def reserves(peak: int, generation: str, ranks: int) -> tuple[Reserve, ...]:
    """Return what a job needs beside its tensors: workspaces of graphs, buffers of HCCL, and fragments.

    Args:
        peak: Highest memory of tensors, in bytes.
        generation: Generation of the cards.
        ranks: Number of ranks; one needs no buffers of HCCL.
    """
    found = []
    for entry in memory_entries():
        if entry["name"] == "HCCL buffers" and ranks == 1:
            continue
        low, high = (int(end * (peak if entry["unit"] == "of the peak" else 1)) for end in entry["range"])
        if entry["unit"] == "of GAUDI2":
            # A larger card runs larger batches, whose workspaces are larger.
            share = usable_memory(generation) / usable_memory("GAUDI2")
            low, high = int(low * share), int(high * share)
        found.append(Reserve(entry["name"], low, high, entry["source"]))
    return tuple(found)


def verdict(peak: int, generation: str, ranks: int) -> Verdict:
    """Return whether a job with a peak of its tensors fits on a card."""
    usable = usable_memory(generation)
    parts = reserves(peak, generation, ranks)
    if peak + sum(each.high for each in parts) <= usable:
        return "fits"
    return "tight" if peak + sum(each.low for each in parts) <= usable else "no"


def fitting_bytes(generation: str, ranks: int) -> int:
    """Return the largest peak of tensors that :func:`verdict` calls "fits"."""
    low, high = 0, usable_memory(generation)
    while low < high:
        middle = (low + high + 1) // 2
        if verdict(middle, generation, ranks) == "fits":
            low = middle
        else:
            high = middle - 1
    return low
