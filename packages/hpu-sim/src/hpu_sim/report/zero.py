"""What ZeRO would leave on each card: an estimate from this run's peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hpu_sim.report.model import RankRecord

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
    spread: str
    peaks: tuple[int, ...]


def estimate(record: RankRecord) -> tuple[Stage, ...]:
    """Return the estimate for each stage; empty where it is not known what the optimizers hold.

    Everything else (activations, batches, buffers of the collectives) is taken to stay as it was at the peak, at which
    gradients and optimizer state are taken to have been there.
    """
    model = record.model
    if model is None:
        return ()
    spread = (
        0,
        model.optimizer,
        model.optimizer + model.gradients,
        model.optimizer + model.gradients + model.parameters,
    )
    peak = record.totals["peak_bytes"]
    return tuple(
        Stage(number, name, tuple(max(peak - bytes_ + bytes_ // cards, bytes_ // cards) for cards in WORLD_SIZES))
        for (number, name), bytes_ in zip(STAGES, spread, strict=True)
    )
