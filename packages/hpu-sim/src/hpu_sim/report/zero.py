"""What ZeRO would leave on each card: an estimate from this run's peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.report.schema import RankRecord

WORLD_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)

#: What each stage spreads over the cards.
STAGES: Final = (
    (0, "nothing"),
    (1, "optimizer state"),
    (2, "optimizer state and gradients"),
    (3, "optimizer state, gradients and parameters"),
)


@dataclass(frozen=True)
class Stage:
    """Peak memory of a card under one stage.

    Attributes:
        number: The stage, 0 to 3; 0 is plain data parallelism.
        spread: What it spreads over the cards.
        peaks: Estimated peak in bytes, for each of :data:`WORLD_SIZES`.
    """

    number: int
    partitioned: str
    peaks: tuple[int, ...]


def estimate_zero_stages(record: RankRecord) -> tuple[Stage, ...]:
    """Return the estimate for each stage; empty where it is not known what the optimizers hold.

    Everything else (activations, batches, buffers of the collectives) is taken to stay as it was at the peak, at which
    gradients and optimizer state are taken to have been there.
    """
    memory = record.optimizer_memory
    if memory is None:
        return ()
    partitioned = (
        0,
        memory.optimizer_state,
        memory.optimizer_state + memory.gradients,
        memory.optimizer_state + memory.gradients + memory.parameters,
    )
    peak = record.totals["peak_bytes"]
    return tuple(
        Stage(number, name, tuple(max(peak - bytes_ + bytes_ // devices, bytes_ // devices) for devices in WORLD_SIZES))
        for (number, name), bytes_ in zip(STAGES, partitioned, strict=True)
    )
