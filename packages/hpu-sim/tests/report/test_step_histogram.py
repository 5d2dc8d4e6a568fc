"""Sums over steps."""

from __future__ import annotations

from hpu_sim.report.step_histogram import MAX_BINS, MAX_SYNC_COUNTS, StepHistogram


def _after(host_syncs: list[int]) -> StepHistogram:
    histogram = StepHistogram()
    for count in host_syncs:
        histogram.host_syncs = count
        histogram.compilations = 1
        histogram.copied_bytes = 10
        histogram.end_step()
    return histogram


def test_each_step_has_a_bin() -> None:
    """As long as there are not too many."""
    steps = _after([5, 1, 2]).steps(3)

    assert (steps.finished, steps.steps_per_bin) == (3, 1)
    assert (steps.host_syncs, steps.compilations, steps.copied_bytes) == ((5, 1, 2), (1, 1, 1), (10, 10, 10))


def test_a_step_begins_with_nothing() -> None:
    """Sums do not leak into the next one."""
    histogram = _after([5])

    assert (histogram.host_syncs, histogram.compilations, histogram.copied_bytes) == (0, 0, 0)


def test_bins_are_merged_when_there_are_too_many() -> None:
    """Nothing is lost, and memory does not grow."""
    count = 5 * MAX_BINS + 3
    steps = _after([1] * count).steps(count)

    assert steps.steps_per_bin == 8
    assert len(steps.host_syncs) == -(-count // 8)
    assert sum(steps.host_syncs) == count
    assert steps.host_syncs[0] == 8


def test_how_many_steps_had_how_many_syncs() -> None:
    """Without the first one, which has the set-up, too."""
    assert _after([9, 1, 0, 1, 4]).steps(5).syncs_per_step == ((0, 1), (1, 2), (4, 1))


def test_a_last_step_that_nothing_followed_is_left_out_there() -> None:
    """It may hold a test run, too; its bin is there."""
    histogram = _after([1, 1])
    histogram.host_syncs = 50
    histogram.end_step(is_last=True)

    assert histogram.steps(3).syncs_per_step == ((1, 1),)
    assert histogram.steps(3).host_syncs == (1, 1, 50)


def test_different_numbers_of_syncs_are_bounded() -> None:
    """A training in which no two steps are alike still ends."""
    pairs = _after(list(range(3 * MAX_SYNC_COUNTS))).steps(1).syncs_per_step

    assert len(pairs) == MAX_SYNC_COUNTS


def test_no_step_at_all() -> None:
    """As in inference."""
    steps = _after([]).steps(0)

    assert (steps.finished, steps.host_syncs, steps.syncs_per_step) == (0, (), ())
