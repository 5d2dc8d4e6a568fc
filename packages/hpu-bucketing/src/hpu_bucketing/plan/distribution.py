"""Histogram of lengths on the alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Histogram", "as_lengths", "cell_histogram", "round_up"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Aligned sizes with their weights, without empty ones.

    Attributes:
        values: Sizes on the alignment, ascending, `(cells,)` or `(cells, dimensions)`.
        counts: Number of samples of each, `(cells,)`.
    """

    values: NDArray[np.int64]
    counts: NDArray[Any]


def as_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return lengths as an array `(samples, dimensions)`.

    Args:
        lengths: Positive ints, `(samples,)` or `(samples, dimensions)`.

    Raises:
        ValueError: There are none, they have another shape, or one is not a positive int.
    """
    array = np.asarray(lengths)
    if array.size == 0:
        raise ValueError("`lengths` must have at least one length, got none: is the data set empty?")
    if array.ndim not in {1, 2}:
        raise ValueError(f"`lengths` must have the shape (samples,) or (samples, dimensions), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"`lengths` must be ints, got {array.dtype}: count tokens or pixels, not seconds")
    if array.min() < 1:
        raise ValueError(f"`lengths` must be at least 1, got {array.min()}: leave empty samples out")
    return array.astype(np.int64, copy=False).reshape(len(array), -1)


def round_up(lengths: NDArray[np.int64], align: Sequence[int]) -> NDArray[np.int64]:
    """Return lengths, `(samples, dimensions)`, rounded up to multiples of the alignment of their dimension."""
    steps = np.asarray(align, dtype=np.int64)
    return -(-lengths // steps) * steps


def cell_histogram(aligned: NDArray[np.int64]) -> Histogram:
    """Return the distinct aligned sizes, `(samples, dimensions)`, and how many samples have each."""
    if aligned.shape[1] == 1:
        # Counting is linear; `unique` would sort a million lengths.
        counts = np.bincount(aligned[:, 0])
        (values,) = np.nonzero(counts)
        return Histogram(values.astype(np.int64), counts[values])
    values, counts = np.unique(aligned, axis=0, return_counts=True)
    return Histogram(values, counts)
