"""Bandwidth of copies and collectives."""

import pytest

from hpu_profiler.analysis.device_events import bandwidth
from hpu_profiler.trace.model import DeviceEvent


def test_bandwidth_is_that_of_the_busy_time() -> None:
    """Two copies of 6000 bytes overlap: 12000 bytes in 4 us."""
    copies = [DeviceEvent("copy", start, start + 3, "memcpy", "DMA", 6000) for start in (0, 1)]

    rate = bandwidth(copies)

    assert rate is not None
    assert rate.mean == pytest.approx(3)
    assert rate.max == pytest.approx(2)


def test_events_without_sizes_have_no_bandwidth() -> None:
    assert bandwidth([DeviceEvent("copy", 0, 3, "memcpy", "DMA")]) is None
