"""Event counts per training step, in bounded memory."""

from __future__ import annotations

from typing import Final

from hpu_sim.report.schema import Steps

#: Maximum number of bins; beyond it, pairs of bins are merged.
MAX_BINS: Final = 256
#: Maximum number of distinct counts of host syncs per step.
MAX_SYNC_COUNTS: Final = 200


class StepHistogram:
    """Histogram of host syncs, recipe cache misses and copied bytes over steps.

    Attributes:
        host_syncs: Host syncs in the current step.
        compilations: Recipe cache misses in the current step.
        copied_bytes: Bytes copied between host and device in the current step.
    """

    def __init__(self) -> None:
        self.host_syncs = 0
        self.compilations = 0
        self.copied_bytes = 0
        self._steps = 0
        self._width = 1
        self._bins: list[list[int]] = []
        self._sync_counts: dict[int, int] = {}

    def end_step(self, *, is_last: bool = False) -> None:
        """Add the current step to the histogram and begin the next one."""
        histogram = [self.host_syncs, self.compilations, self.copied_bytes]
        # The first and the last step include set-up and teardown, so their syncs say nothing about the others.
        if self._steps and not is_last:
            counts = self._sync_counts
            if self.host_syncs in counts or len(counts) < MAX_SYNC_COUNTS:
                counts[self.host_syncs] = counts.get(self.host_syncs, 0) + 1
        if self._steps == MAX_BINS * self._width:
            self._merge_bins()
        if self._steps % self._width == 0:
            self._bins.append([0, 0, 0])
        self._bins[-1] = _add(self._bins[-1], histogram)
        self._steps += 1
        self.host_syncs = self.compilations = self.copied_bytes = 0

    def _merge_bins(self) -> None:
        pairs = zip(self._bins[::2], self._bins[1::2], strict=True)
        self._bins = [_add(first, second) for first, second in pairs]
        self._width *= 2

    def steps(self, finished: int) -> Steps:
        """Return the histogram."""
        host_syncs, compilations, copied_bytes = zip(*self._bins, strict=True) if self._bins else ((), (), ())
        return Steps(
            finished=finished,
            syncs_per_step=tuple(sorted(self._sync_counts.items())),
            steps_per_bin=self._width,
            host_syncs=host_syncs,
            compilations=compilations,
            copied_bytes=copied_bytes,
        )


def _add(first: list[int], second: list[int]) -> list[int]:
    return [a + b for a, b in zip(first, second, strict=True)]
