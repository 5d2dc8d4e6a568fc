"""Estimate of the peak memory per device under ZeRO, from the peak of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.report.schema import RankRecord

WORLD_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)

#: What each ZeRO stage partitions over the devices.
STAGES: Final = (
    (0, "nothing"),
    (1, "optimizer state"),
    (2, "optimizer state and gradients"),
    (3, "optimizer state, gradients and parameters"),
)


@dataclass(frozen=True)
class Stage:
    """Peak memory per device under one ZeRO stage.

    Attributes:
        number: Stage, 0 to 3; 0 is plain data parallelism.
        partitioned: What the stage partitions.
        peaks: Estimated peak in bytes for each of :data:`WORLD_SIZES`.
    """

    number: int
    partitioned: str
    peaks: tuple[int, ...]


def estimate_zero_stages(record: RankRecord) -> tuple[Stage, ...]:
    """Return the estimate for each stage; empty if the memory of the optimizers is unknown.

    All other memory (activations, batches, buffers of collectives) is assumed to be as at the peak, and the peak is
    assumed to include gradients and optimizer state.

    Args:
        record: Record of one rank.
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
