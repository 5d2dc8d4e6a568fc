"""Ranks that hang, and ranks held in a collective: all exit within the timeout."""

import re

import pytest

from .conftest import Run
from .failure_helpers import HANG_TIMEOUT, RANK, names


def test_a_stopped_rank_ends_the_training(run: Run) -> None:
    """Rank 0, which launched it, kills it."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "stopped")

    assert done.leaked_pids == ()
    assert names(done.output, 1, "has made no progress for .* and has sent no heartbeat"), done.output


def test_a_rank_that_hangs_ends_the_training(run: Run) -> None:
    """It exits, too, and prints its stack."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "loops")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, r"has made no progress for \d+ s.*; rank 0"), done.output
    assert re.search(r'train\.py", line \d+ in fail\b', done.output)


@pytest.mark.parametrize("how", ["killed", "holds the lock"])
def test_a_rank_held_in_a_collective_exits(how: str, run: Run) -> None:
    """A rank that no exception reaches exits after a grace period, and prints the cause before."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", how, "--held")

    assert done.leaked_pids == ()
    assert re.search(rf"\[rank 0\] aborting: {RANK.format(rank=1)} (exited|has )", done.output), done.output
