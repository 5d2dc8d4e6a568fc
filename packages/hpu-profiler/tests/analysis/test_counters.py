"""Counters and bandwidth."""

import pytest

from hpu_profiler.analysis.counters import CounterStats, bandwidth, counter_stats
from hpu_profiler.trace.model import DeviceEvent


def test_statistics_are_those_of_the_windows() -> None:
    counters = {"memory": [(0.0, 9.0), (1.0, 2.0), (2.0, 4.0), (9.0, 8.0)], "outside": [(9.0, 1.0)]}

    assert counter_stats(counters, [(1, 3)]) == (CounterStats("memory", 2, 2, 3, 4),)


def test_bandwidth_is_that_of_the_busy_time() -> None:
    """Two copies of 6000 bytes overlap: 12000 bytes in 4 us."""
    copies = [DeviceEvent("copy", start, start + 3, "memcpy", "DMA", 6000) for start in (0, 1)]

    rate = bandwidth(copies)

    assert rate is not None
    assert rate.mean == pytest.approx(3)
    assert rate.max == pytest.approx(2)


def test_events_without_sizes_have_no_bandwidth() -> None:
    assert bandwidth([DeviceEvent("copy", 0, 3, "memcpy", "DMA")]) is None
