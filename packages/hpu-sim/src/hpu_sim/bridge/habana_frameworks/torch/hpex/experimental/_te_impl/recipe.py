"""Recipes of float8 scaling."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["DelayedScaling", "Format"]


class _FormatMax(NamedTuple):
    """Largest numbers of a format in the forward and the backward pass."""

    max_fwd: float
    max_bwd: float


class Format(enum.Enum):
    """Float8 formats of the forward and the backward pass. E4M3 ends at 240, and on Gaudi 3 at 448."""

    E4M3 = _FormatMax(max_fwd=240.0, max_bwd=240.0)
    E5M2 = _FormatMax(max_fwd=57344.0, max_bwd=57344.0)
    HYBRID = _FormatMax(max_fwd=240.0, max_bwd=57344.0)


@dataclass
class DelayedScaling:
    """Delayed scaling: the scale of a step comes from the absolute maxima (amax) of earlier steps.

    Attributes:
        margin: Powers of two to keep free above the amax.
        interval: Steps between two measurements of the amax, of which ``amax_history_len`` are kept.
        scaling_factor_compute_algo: Function of amax, old scale, largest number of the format and recipe; None for the
            default formula.
        reduce_amax: Whether ranks share the largest amax.

    Raises:
        AssertionError: If a value is invalid.
    """

    margin: int = 0
    interval: int = 1
    fp8_format: Format = Format.E5M2
    amax_history_len: int = 1
    amax_compute_algo: Literal["max", "most_recent"] | Callable[[torch.Tensor], torch.Tensor] = "most_recent"
    override_linear_precision: tuple[bool, bool, bool] = (False, False, False)
    scaling_factor_compute_algo: Callable[..., torch.Tensor] | None = None
    reduce_amax: bool = True

    def __post_init__(self) -> None:
        if self.fp8_format not in {Format.E5M2, Format.HYBRID}:
            raise AssertionError(f"`fp8_format` must be Format.E5M2 or Format.HYBRID, got {self.fp8_format}")
        if self.override_linear_precision != (False, False, False):
            raise AssertionError(
                f"`override_linear_precision` must be (False, False, False), got {self.override_linear_precision}"
            )
        if self.interval < 1 or self.amax_history_len < 1:
            raise AssertionError(
                "`interval` and `amax_history_len` must be at least 1, "
                f"got {self.interval!r} and {self.amax_history_len!r}"
            )
