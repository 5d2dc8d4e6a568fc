"""Memory of a card beside tensors, and whether a job fits: one threshold for plans and for reports of runs.

It is workspaces of graphs and fragments. HCCL takes its buffers before the memory that a program can use is counted
(HCL 1.21, 302 MB on GAUDI2).
"""

from __future__ import annotations

from typing import Literal

from hpu_sim.prediction.hardware import reserve_share

#: "fits" with the whole reserve, "tight" with the least of it, else "no".
Verdict = Literal["fits", "tight", "no"]


def with_reserve(peak: int) -> tuple[int, int]:
    """Return the least and the most memory of a job with a peak of its tensors, in bytes."""
    low, high = reserve_share()
    return int(peak * (1 + low)), int(peak * (1 + high))


def verdict(peak: int, usable: int) -> Verdict:
    """Return whether a job with a peak of its tensors fits in the memory that a program can use."""
    if peak <= fitting_bytes(usable):
        return "fits"
    return "tight" if with_reserve(peak)[0] <= usable else "no"


def fitting_bytes(usable: int) -> int:
    """Return the largest peak of tensors that fits with the whole reserve."""
    return int(usable / (1 + reserve_share()[1]))
