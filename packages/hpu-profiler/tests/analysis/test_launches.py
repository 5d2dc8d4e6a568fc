"""Launches and the queue of the device."""

from hpu_profiler.analysis.launches import LaunchStats, QueueStats, launch_stats, queue_length, queue_stats
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


def test_queue_has_the_launched_events_that_have_not_ended() -> None:
    assert queue_length(EVENTS) == [(0, 1), (4, 2), (12, 1), (15, 0), (20, 1), (40, 0)]


def test_queue_statistics_are_weighted_by_time() -> None:
    """Between 0 and 20, one event is queued for 7 us, two for 8 us and none for 5 us."""
    assert queue_stats(queue_length(EVENTS), [(0, 20)]) == QueueStats((7 + 16) / 20, 2, 0.25)


def test_queue_statistics_are_those_of_the_windows() -> None:
    assert queue_stats(queue_length(EVENTS), [(5, 10), (16, 19)]) == QueueStats(10 / 8, 2, 3 / 8)


def test_trace_without_launches_has_no_queue() -> None:
    assert queue_stats([], [(0, 10)]) == QueueStats()
