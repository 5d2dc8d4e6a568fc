"""Bars over steps."""

from __future__ import annotations

from hpu_sim.report.chart import BAR_WIDTH, HEIGHT, draw


def test_bars_grow_from_the_bottom() -> None:
    """The largest value after the first step is at the top."""
    chart = draw("Host syncs", [2, 4, 0, 1], 1, 4)

    assert chart is not None
    assert (chart.width, chart.top) == (4 * BAR_WIDTH, 4)
    assert [bar.height for bar in chart.bars] == [HEIGHT / 2, HEIGHT, 0, HEIGHT / 4]
    assert all(bar.y + bar.height == HEIGHT for bar in chart.bars)


def test_first_and_last_steps_beyond_the_others_are_cut() -> None:
    """They hold what came before and after, and the others would be flat beside them."""
    chart = draw("Host syncs", [100, 1, 2, 300], 1, 4)

    assert chart is not None
    assert chart.top == 2
    assert [bar.height for bar in chart.bars] == [HEIGHT, HEIGHT / 2, HEIGHT, HEIGHT]
    assert [bar.is_edge for bar in chart.bars] == [True, False, False, True]


def test_a_first_step_alone_is_shown() -> None:
    """Where the others have nothing."""
    chart = draw("Graphs compiled", [3, 0, 0], 1, 3)

    assert chart is not None
    assert chart.bars[0].height == HEIGHT


def test_labels_name_steps_and_counts() -> None:
    """Several where they share a bar; the last bar may be short of some."""
    one, many = draw("x", [5, 1, 2], 1, 3), draw("x", [5, 1], 4, 6)

    assert one is not None
    assert many is not None
    assert [bar.label for bar in one.bars] == [
        "step 1 and everything before: 5",
        "step 2: 1",
        "step 3 and everything behind: 2",
    ]
    assert [bar.label for bar in many.bars] == [
        "steps 1 to 4 and everything before: 5",
        "steps 5 to 6 and everything behind: 1",
    ]


def test_nothing_makes_no_chart() -> None:
    """An empty box says less than none."""
    assert draw("x", [], 1, 0) is None
    assert draw("x", [0, 0], 1, 2) is None
