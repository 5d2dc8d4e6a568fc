"""Tests of the bar charts."""

from __future__ import annotations

from hpu_sim.report.chart import BAR_WIDTH, HEIGHT, draw


def test_bars_scale_to_the_largest_inner_value() -> None:
    chart = draw("Host syncs", [2, 4, 0, 1], 1, 4)

    assert chart is not None
    assert (chart.width, chart.top) == (4 * BAR_WIDTH, 4)
    assert [bar.height for bar in chart.bars] == [HEIGHT / 2, HEIGHT, 0, HEIGHT / 4]
    assert all(bar.y + bar.height == HEIGHT for bar in chart.bars)


def test_first_and_last_bar_are_clipped() -> None:
    """They include set-up and teardown, which would dwarf the others."""
    chart = draw("Host syncs", [100, 1, 2, 300], 1, 4)

    assert chart is not None
    assert chart.top == 2
    assert [bar.height for bar in chart.bars] == [HEIGHT, HEIGHT / 2, HEIGHT, HEIGHT]
    assert [bar.is_edge for bar in chart.bars] == [True, False, False, True]


def test_first_bar_sets_the_scale_if_others_are_zero() -> None:
    chart = draw("Recipe cache misses", [3, 0, 0], 1, 3)

    assert chart is not None
    assert chart.bars[0].height == HEIGHT


def test_labels_name_steps_and_counts() -> None:
    one, many = draw("x", [5, 1, 2], 1, 3), draw("x", [5, 1], 4, 6)

    assert one is not None
    assert many is not None
    assert [bar.label for bar in one.bars] == ["step 1 and set-up: 5", "step 2: 1", "step 3 and teardown: 2"]
    assert [bar.label for bar in many.bars] == ["steps 1 to 4 and set-up: 5", "steps 5 to 6 and teardown: 1"]


def test_zeros_give_no_chart() -> None:
    assert draw("x", [], 1, 0) is None
    assert draw("x", [0, 0], 1, 2) is None
