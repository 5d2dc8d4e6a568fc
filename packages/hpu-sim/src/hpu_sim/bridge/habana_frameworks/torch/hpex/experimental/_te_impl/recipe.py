"""How numbers are scaled into float8."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["DelayedScaling", "Format"]


class _Largest(NamedTuple):
    """The largest numbers of a format."""

    max_fwd: float
    max_bwd: float


class Format(enum.Enum):
    """Which float8 the forward and the backward pass use. A card's E4M3 ends at 240, others' at 448."""

    E4M3 = _Largest(max_fwd=240.0, max_bwd=240.0)
    E5M2 = _Largest(max_fwd=57344.0, max_bwd=57344.0)
    HYBRID = _Largest(max_fwd=240.0, max_bwd=57344.0)


@dataclass
class DelayedScaling:
    """Scale by the largest numbers of the steps before.

    Attributes:
        margin: Powers of two that stay free above the largest number.
        interval: Steps between two measurements.
        fp8_format: ``Format.E5M2`` or ``Format.HYBRID``.
        amax_history_len: Steps that are remembered.
        amax_compute_algo: ``"max"`` of the history, its ``"most_recent"``, or a function of it.
        override_linear_precision: Passes to leave in high precision; none can be.
        scaling_factor_compute_algo: Function of the largest number, the old scale, the format's largest and the recipe,
            or None for the usual.
        reduce_amax: Whether the ranks of a job share the largest number.

    Raises:
        AssertionError: If a value cannot be.
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
            raise AssertionError("`override_linear_precision` must be (False, False, False): no pass can be left out")
        if self.interval < 1 or self.amax_history_len < 1:
            raise AssertionError(
                "`interval` and `amax_history_len` must be at least 1, "
                f"got {self.interval!r} and {self.amax_history_len!r}"
            )
