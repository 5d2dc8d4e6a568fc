"""Histogram of lengths on the alignment, and the distribution of batch maxima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Histogram", "as_lengths", "batch_max_lengths", "cell_histogram", "round_up"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Aligned sizes with their weights, without empty ones.

    Attributes:
        values: Sizes on the alignment, ascending, `(cells,)` or `(cells, dimensions)`.
        counts: Number of samples, or probability, of each, `(cells,)`.
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


def batch_max_lengths(histogram: Histogram, draws: int) -> Histogram:
    """Return the distribution of the longest of some samples drawn without replacement.

    It is the order statistic of a shuffled data set without approximation: the longest of n samples is at most x with
    the probability C(samples of at most x, n) / C(samples, n). Without replacement, because a sampler draws each sample
    once per epoch.

    Args:
        histogram: Lengths of one dimension.
        draws: Number of samples; 1 returns the distribution of single lengths, as counts.
    """
    total = int(histogram.counts.sum())
    draws = min(draws, total)
    if draws == 1:
        return histogram
    at_most = np.cumsum(histogram.counts).astype(np.float64)
    cumulative = np.ones(len(at_most))
    for index in range(draws):
        cumulative *= np.clip((at_most - index) / (total - index), 0.0, 1.0)
    return Histogram(histogram.values, np.diff(cumulative, prepend=0.0))
