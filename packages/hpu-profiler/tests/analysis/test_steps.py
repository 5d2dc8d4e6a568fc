"""Steps one by one, and the critical path."""

from hpu_profiler.analysis.steps import PathStep, StepStats, critical_path, step_stats
from hpu_profiler.trace.model import HostSpan


def _step(name: str, card: float, network: float, host: float) -> StepStats:
    return StepStats(name, card + network + host, card, network, host, None)


def test_time_of_a_step_is_of_card_network_or_host() -> None:
    """Communication during computation is the card's time. Validation from 80 to 90 belongs to no step of training."""
    steps = step_stats(
        [HostSpan("a", 0, 50, 7), HostSpan("b", 50, 100, 7)], [(0, 80), (90, 100)], [(10, 30), (60, 70)], [(25, 40)]
    )

    assert steps == (StepStats("a", 50, 20, 10, 20, 40), StepStats("b", 40, 10, 0, 30, None))


def test_path_goes_through_the_rank_with_most_work_of_its_own() -> None:
    """The collectives take as long as on the rank that waits least."""
    path = critical_path(
        {"rank 0": [_step("a", 50, 45, 5), _step("b", 60, 30, 10)], "rank 1": [_step("a", 80, 10, 10)]}
    )

    assert path == (PathStep("a", "rank 1", 10, 80, 10),)
    assert path[0].duration == 100


def test_no_ranks_have_no_path() -> None:
    assert critical_path({}) == ()
