"""Hangs: every rank exits within the timeout. `nox -s faults` measures other ones."""

import re

from .conftest import Run
from .failure_helpers import HANG_TIMEOUT, RANK, has_rank_error


def test_hung_rank_exits_and_is_named(run: Run) -> None:
    """The rank that hangs prints its stack. The other one waits for its buffers."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "loops", "--rank", "0", "--before", "forward")

    assert (done.code, done.leaked_pids) == (1, ())
    assert has_rank_error(done.output, 0, r"has made no progress for \d+ s.*; rank 1"), done.output
    assert re.search(r'train\.py", line \d+ in fail\b', done.output)


def test_a_rank_that_is_held_exits(run: Run) -> None:
    """A rank that a call of the device holds prints the cause and exits after a grace period."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "killed", "--held")

    assert done.leaked_pids == ()
    named = rf"\[rank 0\] aborting: {RANK.format(rank=1)} exited"
    assert re.search(named, done.output), done.output
