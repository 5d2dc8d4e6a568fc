"""Geometry of the timeline."""

from hpu_profiler.report.timeline import MAX_BARS, WIDTH, timeline
from hpu_profiler.trace.model import DeviceEvent, Trace


def test_each_engine_has_a_track(slow_rank: Trace) -> None:
    assert [track.name for track in timeline(slow_rank)] == ["steps", "host", "MME", "DMA", "NIC"]


def test_bars_are_placed_by_time(fast_rank: Trace) -> None:
    """The second of two steps starts in the middle. Data loading takes 5 us of 200 us."""
    tracks = {track.name: track for track in timeline(fast_rank)}
    loading = [bar for bar in tracks["host"].bars if bar.css_class == "data-loading"]

    assert [(bar.x, bar.width) for bar in tracks["steps"].bars] == [(0, WIDTH / 2), (WIDTH / 2, WIDTH / 2)]
    assert [(bar.x, bar.width) for bar in loading] == [(0, 25), (500, 25)]


def test_bars_are_labeled(fast_rank: Trace) -> None:
    (track,) = (track for track in timeline(fast_rank) if track.name == "NIC")

    assert track.bars[0].label == "hccl:allreduce: 70 us"


def test_many_events_become_density_bars(fast_rank: Trace) -> None:
    """Events that cover half of each slice of time make bars of half opacity."""
    start, end = fast_rank.window
    count = 2 * MAX_BARS
    period = (end - start) / count
    fast_rank.device_events = [
        DeviceEvent("k", start + index * period, start + (index + 0.5) * period, "kernel", "TPC")
        for index in range(count)
    ]

    (track,) = (track for track in timeline(fast_rank) if track.name == "TPC")

    assert len(track.bars) == MAX_BARS
    assert {bar.opacity for bar in track.bars} == {0.5}
