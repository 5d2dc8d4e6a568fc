"""What happened when, as geometry."""

from hpu_profiler.report.timeline import MOST_BARS, WIDTH, draw
from hpu_profiler.trace.model import Trace, Work


def test_there_is_a_lane_for_each_engine(slow: Trace) -> None:
    """After the steps and the host."""
    assert [lane.name for lane in draw(slow)] == ["steps", "host", "MME", "DMA", "NIC"]


def test_bars_lie_where_things_happened(quick: Trace) -> None:
    """Of two steps the second begins in the middle; it loads for 5 us of 200."""
    lanes = {lane.name: lane for lane in draw(quick)}

    assert [(bar.x, bar.width) for bar in lanes["steps"].bars] == [(0, WIDTH / 2), (WIDTH / 2, WIDTH / 2)]
    assert [(bar.x, bar.width) for bar in lanes["host"].bars if bar.tone == "loading"] == [(0, 25), (500, 25)]


def test_bars_tell_what_they_are(quick: Trace) -> None:
    """To whoever points at them."""
    (lane,) = (lane for lane in draw(quick) if lane.name == "NIC")

    assert lane.bars[0].label == "hccl:allreduce: 70 us"


def test_more_bars_than_can_be_seen_become_shares(quick: Trace) -> None:
    """Each as dense as its time is filled: here by a half."""
    begin, end = quick.window
    count = 2 * MOST_BARS
    piece = (end - begin) / count
    quick.work = [
        Work("k", "kernel", "TPC", begin + index * piece, begin + (index + 0.5) * piece) for index in range(count)
    ]

    (lane,) = (lane for lane in draw(quick) if lane.name == "TPC")

    assert len(lane.bars) == MOST_BARS
    assert {bar.opacity for bar in lane.bars} == {0.5}
