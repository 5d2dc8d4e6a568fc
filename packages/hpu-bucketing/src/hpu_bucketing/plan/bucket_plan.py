"""Boundaries of buckets with the reasons for them."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpu_bucketing.plan.curve import CostModel, CurvePoint, find_knee
from hpu_bucketing.plan.distribution import Histogram, as_lengths, cell_histogram, round_up
from hpu_bucketing.plan.optimum import Boundaries, grid_boundaries, optimal_boundaries, padded_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["BucketPlan"]

# Share of tokens; no choice of buckets can lower it.
_MAX_ALIGNMENT_PADDING = 0.5
_ALIGNMENTS = (128, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """Boundaries of buckets. A sample belongs to the smallest bucket that it fits into.

    Attributes:
        dimensions: Boundaries of each dimension, ascending. The shapes are their combinations.
        curve: Consequences of each number of buckets that was considered; empty for boundaries given by hand.
        reason: Why these boundaries were chosen.
        batch_size: Number of samples per batch.
    """

    dimensions: tuple[Boundaries, ...]
    curve: tuple[CurvePoint, ...] = field(default=(), repr=False)
    reason: str = field(default="", repr=False)
    batch_size: int = 1

    def __post_init__(self) -> None:
        if not self.dimensions or not all(self.dimensions):
            raise ValueError(f"`dimensions` must have boundaries for each dimension, got {self.dimensions!r}")
        for limits in self.dimensions:
            if limits[0] < 1 or any(a >= b for a, b in itertools.pairwise(limits)):
                raise ValueError(f"boundaries must be positive and ascending, got {limits!r}")

    @classmethod
    def from_boundaries(cls, *dimensions: Sequence[int]) -> BucketPlan:
        """Return a plan with boundaries of each dimension given by hand.

        >>> BucketPlan.from_boundaries([128, 512]).fit(200)
        (512,)
        """
        return cls(tuple(tuple(sorted(set(limits))) for limits in dimensions), reason="given by hand")

    @classmethod
    def from_lengths(  # noqa: PLR0913 - each is a fact about the training
        cls,
        lengths: ArrayLike,
        batch_size: int,
        *,
        align: int | Sequence[int] | None = None,
        max_buckets: int = 16,
        num_buckets: int | None = None,
        ranks: int = 1,
        epochs: int = 1,
        samples: int | None = None,
        seconds_per_compilation: float = 25.0,
        tokens_per_second: float | None = None,
        min_saving: float = 0.01,
    ) -> BucketPlan:
        """Choose boundaries for lengths.

        For one dimension, the boundaries of each number of buckets are the exact optimum on the alignment. For several,
        each dimension is the optimum given the others.

        >>> plan = BucketPlan.from_lengths([100] * 90 + [1000] * 10, batch_size=4, align=64)
        >>> plan.dimensions
        ((128, 1024),)

        Args:
            lengths: Length of each sample, `(samples,)` or `(samples, dimensions)`.
            batch_size: Number of samples per batch of one rank.
            align: Boundaries are multiples of it, or of one number per dimension. The vendor recommends 64 for float32
                and 128 for bfloat16. None for 128, or less where that alone would make most of the tokens padding.
            max_buckets: Largest number of shapes to consider.
            num_buckets: Number of shapes; None to choose it by the knee of the curve.
            ranks: Number of ranks.
            epochs: Number of epochs of the training.
            samples: Number of samples of an epoch on all ranks; None if `lengths` has all of them.
            seconds_per_compilation: Time to compile one graph.
            tokens_per_second: Tokens that a rank trains on per second. With it, the number of buckets of the least
                estimated time is chosen.
            min_saving: Without `tokens_per_second`, a bucket pays if it saves this share of the tokens.

        Warns:
            UserWarning: A given alignment alone makes most of the tokens padding, whatever the buckets.

        Raises:
            ValueError: An argument is out of its range.
        """
        array = as_lengths(lengths)
        limit = max_buckets if num_buckets is None else num_buckets
        if samples is not None and samples < 1:
            raise ValueError(f"`samples` must be a positive int or None, got {samples!r}")
        steps = _validate(array, batch_size, _choose_align(array) if align is None else align, limit)
        costs = CostModel(ranks, epochs, seconds_per_compilation, tokens_per_second, min_saving)
        aligned = round_up(array, steps)
        histogram = cell_histogram(aligned)
        if array.shape[1] == 1:
            candidates: list[tuple[Boundaries, ...]] = [(limits,) for limits in optimal_boundaries(histogram, limit)]
        else:
            candidates = _best_grids(histogram, limit)
        real = float(np.prod(array, axis=1, dtype=np.float64).mean())
        _warn_of_alignment(array, aligned, steps)
        points = tuple(_point(each, histogram, real, samples or len(array), costs) for each in candidates)
        if num_buckets is None:
            knee, reason = find_knee(points, costs)
        else:
            knee, reason = len(points) - 1, f"`num_buckets` is {num_buckets}"
        return cls(points[knee].boundaries, points, reason, batch_size)

    @property
    def boundaries(self) -> Boundaries:
        """Boundaries of the only dimension.

        Raises:
            ValueError: The plan has several dimensions.
        """
        if len(self.dimensions) != 1:
            raise ValueError(f"the plan has {len(self.dimensions)} dimensions: use `dimensions`")
        return self.dimensions[0]

    @property
    def shapes(self) -> tuple[Boundaries, ...]:
        """Padded sizes of the buckets, the smallest first."""
        return tuple(sorted(itertools.product(*self.dimensions), key=lambda shape: (math.prod(shape), shape)))

    @property
    def chosen(self) -> CurvePoint | None:
        """Point of the curve with the chosen boundaries."""
        return next((point for point in self.curve if point.boundaries == self.dimensions), None)

    def fit(self, size: int | Sequence[int]) -> Boundaries:
        """Return the padded size of the smallest bucket that a sample fits into.

        Args:
            size: Length of the sample, or one per dimension.

        Raises:
            ValueError: The sample does not fit into the largest bucket.
        """
        sizes = (int(size),) if np.ndim(size) == 0 else tuple(size)  # type: ignore[arg-type] # numpy's ints too
        if len(sizes) != len(self.dimensions):
            raise ValueError(f"`size` must have {len(self.dimensions)} dimensions, got {sizes!r}")
        return tuple(_smallest(limits, value) for limits, value in zip(self.dimensions, sizes, strict=True))

    def assign(self, lengths: ArrayLike) -> NDArray[np.int64]:
        """Return the index in `shapes` of each sample's bucket.

        Args:
            lengths: Lengths, `(samples,)` or `(samples, dimensions)`.

        Raises:
            ValueError: A sample does not fit into the largest bucket.
        """
        array = as_lengths(lengths)
        if array.shape[1] != len(self.dimensions):
            raise ValueError(f"`lengths` must have {len(self.dimensions)} dimensions, got {array.shape[1]}")
        flat = np.zeros(len(array), dtype=np.int64)
        for dimension, limits in enumerate(self.dimensions):
            _smallest(limits, int(array[:, dimension].max()))
            flat = flat * len(limits) + np.searchsorted(np.asarray(limits), array[:, dimension])
        grid = list(itertools.product(*self.dimensions))
        ranks = {shape: index for index, shape in enumerate(self.shapes)}
        return np.asarray([ranks[shape] for shape in grid], dtype=np.int64)[flat]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values of JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BucketPlan:
        """Return the plan of `to_dict`'s values, also after JSON, and of `hpu-bucketing plan --json`."""
        values = {name: value for name, value in values.items() if name != "schema_version"}
        curve = tuple(
            CurvePoint(**{**point, "boundaries": _tuples(point["boundaries"])}) for point in values.get("curve", ())
        )
        return cls(**{**values, "dimensions": _tuples(values["dimensions"]), "curve": curve})


def _choose_align(lengths: NDArray[np.int64]) -> tuple[int, ...]:
    """Return for each dimension the largest alignment that alone does not make most of it padding."""
    return tuple(
        next((step for step in _ALIGNMENTS if _alignment_padding(column, step) <= _MAX_ALIGNMENT_PADDING), 1)
        for column in lengths.T
    )


def _alignment_padding(lengths: NDArray[np.int64], step: int) -> float:
    return 1 - float(lengths.sum(dtype=np.float64)) / float((-(-lengths // step) * step).sum(dtype=np.float64))


def _validate(lengths: NDArray[np.int64], batch_size: int, align: int | Sequence[int], buckets: int) -> tuple[int, ...]:
    """Return the alignment of each dimension."""
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be a positive int, got {batch_size!r}")
    if buckets < 1:
        raise ValueError(f"the number of buckets must be a positive int, got {buckets!r}")
    dimensions = lengths.shape[1]
    steps = (align,) * dimensions if isinstance(align, int) else tuple(align)
    if len(steps) != dimensions or min(steps) < 1:
        raise ValueError(f"`align` must be a positive int, or one for each of {dimensions} dimensions, got {align!r}")
    return steps


def _best_grids(histogram: Histogram, max_shapes: int) -> list[tuple[Boundaries, ...]]:
    """Return the best grid for each number of shapes that pads less than every smaller one."""
    best: dict[int, tuple[float, tuple[Boundaries, ...]]] = {}
    for grid in grid_boundaries(histogram, max_shapes):
        size, shapes = padded_size(histogram, grid), _occupied(histogram, grid)
        if shapes not in best or size < best[shapes][0]:
            best[shapes] = (size, grid)
    grids: list[tuple[Boundaries, ...]] = []
    least = math.inf
    for _, (size, grid) in sorted(best.items()):
        if size < least:
            least = size
            grids.append(grid)
    return grids


def _warn_of_alignment(lengths: NDArray[np.int64], aligned: NDArray[np.int64], steps: tuple[int, ...]) -> None:
    sizes = [float(np.prod(array, axis=1, dtype=np.float64).mean()) for array in (lengths, aligned)]
    padding = 1 - sizes[0] / sizes[1]
    if padding > _MAX_ALIGNMENT_PADDING:
        align = steps[0] if len(set(steps)) == 1 else steps
        warnings.warn(
            f"`align={align}` alone makes {padding:.1%} of the tokens padding, for samples of {lengths.min()} to "
            f"{lengths.max()}: pass a smaller one, such as `align=8`",
            stacklevel=3,
        )


def _occupied(histogram: Histogram, boundaries: Sequence[Sequence[int]]) -> int:
    """Return the number of shapes that occur."""
    cells = histogram.values.reshape(len(histogram.values), -1)[np.asarray(histogram.counts) > 0]
    columns = [np.searchsorted(np.asarray(limits), cells[:, index]) for index, limits in enumerate(boundaries)]
    return len(np.unique(np.stack(columns), axis=1).T)


def _point(
    boundaries: tuple[Boundaries, ...], histogram: Histogram, real: float, samples: int, costs: CostModel
) -> CurvePoint:
    padded = padded_size(histogram, boundaries) / float(histogram.counts.sum())
    shapes = _occupied(histogram, boundaries)
    return CurvePoint(
        boundaries=boundaries,
        compilations=shapes,
        padding_share=1 - real / padded,
        seconds=costs.seconds(samples * padded, shapes),
    )


def _smallest(limits: Boundaries, value: int) -> int:
    if value > limits[-1]:
        raise ValueError(
            f"a sample of length {value} does not fit into the largest bucket, {limits[-1]}: truncate or drop it, or "
            "make the plan from all lengths"
        )
    return next(limit for limit in limits if limit >= value)


def _tuples(values: Sequence[Sequence[int]]) -> tuple[Boundaries, ...]:
    return tuple(tuple(limits) for limits in values)
