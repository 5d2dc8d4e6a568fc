"""Memory of a card beside tensors, and whether a job fits: one threshold for plans and for reports of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpu_sim.prediction.hardware import reserve_shares

#: "fits" with the whole reserve, "tight" with the least of it, else "no".
Verdict = Literal["fits", "tight", "no"]


@dataclass(frozen=True)
class Reserve:
    """Part of the reserve, as a range.

    Attributes:
        name: What it is.
        low: Least bytes.
        high: Most bytes.
    """

    name: str
    low: int
    high: int


def reserves(peak: int) -> tuple[Reserve, ...]:
    """Return what a job needs beside its tensors: workspaces of graphs and fragments.

    HCCL takes its buffers before the memory that a program can use is counted (HCL 1.21, 302 MB on GAUDI2).

    Args:
        peak: Highest memory of tensors, in bytes.
    """
    return tuple(Reserve(name, int(low * peak), int(high * peak)) for name, (low, high) in reserve_shares().items())


def verdict(peak: int, usable: int) -> Verdict:
    """Return whether a job with a peak of its tensors fits in the memory that a program can use."""
    if peak <= fitting_bytes(usable):
        return "fits"
    return "tight" if peak + sum(each.low for each in reserves(peak)) <= usable else "no"


def fitting_bytes(usable: int) -> int:
    """Return the largest peak of tensors that fits with the whole reserve."""
    return int(usable / (1 + sum(high for _, high in reserve_shares().values())))
