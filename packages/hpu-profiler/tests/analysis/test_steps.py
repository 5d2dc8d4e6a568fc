"""Steps one by one."""

from hpu_profiler.analysis.steps import StepStats, step_stats
from hpu_profiler.trace.model import HostSpan


def test_time_of_a_step_is_of_card_network_or_host() -> None:
    """Communication during computation is the card's time. Validation from 80 to 90 belongs to no step of training."""
    steps = step_stats(
        [HostSpan("a", 0, 50, 7), HostSpan("b", 50, 100, 7)], [(0, 80), (90, 100)], [(10, 30), (60, 70)], [(25, 40)]
    )

    assert steps == (StepStats("a", 50, 20, 10, 20), StepStats("b", 40, 10, 0, 30))
