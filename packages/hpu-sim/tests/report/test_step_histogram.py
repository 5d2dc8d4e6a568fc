"""Tests of the histogram over training steps."""

from __future__ import annotations

from hpu_sim.report.step_histogram import MAX_BINS, MAX_SYNC_COUNTS, StepHistogram


def _histogram(host_syncs: list[int]) -> StepHistogram:
    histogram = StepHistogram()
    for count in host_syncs:
        histogram.host_syncs = count
        histogram.compilations = 1
        histogram.copied_bytes = 10
        histogram.end_step()
    return histogram


def test_few_steps_have_a_bin_each() -> None:
    steps = _histogram([5, 1, 2]).steps(3)

    assert (steps.finished, steps.steps_per_bin) == (3, 1)
    assert (steps.host_syncs, steps.compilations, steps.copied_bytes) == ((5, 1, 2), (1, 1, 1), (10, 10, 10))


def test_end_of_step_resets_the_counts() -> None:
    histogram = _histogram([5])

    assert (histogram.host_syncs, histogram.compilations, histogram.copied_bytes) == (0, 0, 0)


def test_bins_are_merged_beyond_the_maximum() -> None:
    count = 5 * MAX_BINS + 3
    steps = _histogram([1] * count).steps(count)

    assert steps.steps_per_bin == 8
    assert len(steps.host_syncs) == -(-count // 8)
    assert sum(steps.host_syncs) == count
    assert steps.host_syncs[0] == 8


def test_syncs_per_step_exclude_the_first_step() -> None:
    assert _histogram([9, 1, 0, 1, 4]).steps(5).syncs_per_step == ((0, 1), (1, 2), (4, 1))


def test_syncs_per_step_exclude_the_last_step() -> None:
    histogram = _histogram([1, 1])
    histogram.host_syncs = 50
    histogram.end_step(is_last=True)

    assert histogram.steps(3).syncs_per_step == ((1, 1),)
    assert histogram.steps(3).host_syncs == (1, 1, 50)


def test_distinct_sync_counts_are_bounded() -> None:
    pairs = _histogram(list(range(3 * MAX_SYNC_COUNTS))).steps(1).syncs_per_step

    assert len(pairs) == MAX_SYNC_COUNTS


def test_no_step_gives_an_empty_histogram() -> None:
    steps = _histogram([]).steps(0)

    assert (steps.finished, steps.host_syncs, steps.syncs_per_step) == (0, (), ())
