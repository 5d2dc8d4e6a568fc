"""Curve of padding, compilations and time over the number of buckets, and its knee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_bucketing.plan.optimum import Boundaries

__all__ = ["CostModel", "CurvePoint", "find_knee"]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Consequences of a choice of buckets.

    Attributes:
        boundaries: Boundaries of each dimension.
        compilations: Number of shapes, each compiled once.
        padding_share: Share of padding in the tokens of all batches.
        seconds: Estimated time of the training in seconds; None without `tokens_per_second`.
    """

    boundaries: tuple[Boundaries, ...]
    compilations: int
    padding_share: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CostModel:
    """Price of a compilation, in time or in tokens.

    Attributes:
        ranks: Number of ranks.
        epochs: Number of epochs that the compilations are spread over.
        seconds_per_compilation: Time to compile a graph. Users report 15 to 38 s for a large one.
        tokens_per_second: Tokens, padding included, that a rank trains on per second; None if it is unknown.
        min_saving: Without `tokens_per_second`, a bucket pays if it saves this share of the tokens without padding.
    """

    ranks: int = 1
    epochs: int = 1
    seconds_per_compilation: float = 25.0
    tokens_per_second: float | None = None
    min_saving: float = 0.01

    def __post_init__(self) -> None:
        for name in ("ranks", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be a positive int, got {getattr(self, name)!r}")
        if self.tokens_per_second is not None and self.tokens_per_second <= 0:
            raise ValueError(f"`tokens_per_second` must be positive or None, got {self.tokens_per_second!r}")

    def seconds(self, tokens: float, compilations: int) -> float | None:
        """Return the estimated time of a training; None without `tokens_per_second`.

        Args:
            tokens: Tokens of an epoch with padding.
            compilations: Number of compilations, for each of which all ranks wait at once.
        """
        if self.tokens_per_second is None:
            return None
        training = self.epochs * tokens / (self.ranks * self.tokens_per_second)
        return training + compilations * self.seconds_per_compilation


def find_knee(points: Sequence[CurvePoint], costs: CostModel) -> tuple[int, str]:
    """Return the index of the point to choose, of one per number of buckets, and a sentence that explains it."""
    if costs.tokens_per_second is not None:
        times = [point.seconds or 0.0 for point in points]
        knee = min(range(len(points)), key=times.__getitem__)
        least = times[knee]
        others = [f"{_count(each)}: {(each.seconds or 0.0) - least:,.0f} s more" for each in _neighbors(points, knee)]
        return knee, (
            f"The estimated time is least with {_count(points[knee])}, {least:,.0f} s. "
            f"{'; '.join(others) or 'There is no other choice'}."
        )
    tokens = [1 / (1 - point.padding_share) for point in points]
    prices = [size + costs.min_saving * point.compilations for size, point in zip(tokens, points, strict=True)]
    knee = min(range(len(points)), key=prices.__getitem__)
    parts = (f", {_count(each)} {each.padding_share:.1%}" for each in _neighbors(points, knee))
    reason = f"{_count(points[knee])} pad {points[knee].padding_share:.1%}{''.join(parts)}"
    return knee, f"{reason}. A bucket counts if it saves {costs.min_saving:.1%} of the tokens."


def _count(point: CurvePoint) -> str:
    return f"{point.compilations} bucket{'s' if point.compilations != 1 else ''}"


def _neighbors(points: Sequence[CurvePoint], knee: int) -> Sequence[CurvePoint]:
    return [*points[max(0, knee - 1) : knee], *points[knee + 1 : knee + 2]]
