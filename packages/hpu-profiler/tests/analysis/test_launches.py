"""Launches of device events."""

from hpu_profiler.analysis.launches import LaunchStats, launch_stats
from hpu_profiler.trace.model import DeviceEvent, Launch


def _event(launch: tuple[float, float], start: float, end: float) -> DeviceEvent:
    return DeviceEvent("k", start, end, "kernel", "TPC", launch=Launch("launch", *launch))


EVENTS = [_event((0, 2), 2, 12), _event((4, 6), 12, 15), _event((20, 21), 31, 40)]


def test_delay_is_the_time_from_launch_to_start() -> None:
    assert launch_stats(EVENTS) == LaunchStats(
        launches=3, kernels=3, short_kernels=1, launch_time=2, delay=6, max_delay=10
    )


def test_events_without_a_launch_are_left_out() -> None:
    assert launch_stats([DeviceEvent("k", 0, 1, "kernel", "TPC")]) == LaunchStats()
