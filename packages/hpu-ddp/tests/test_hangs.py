"""What becomes of a training in which a rank goes on and answers no more: it is ended, and so are all others."""

import re

import pytest

from .conftest import Run
from .losing import RANK, TIMEOUT, names


def test_a_stopped_rank_ends_the_training(run: Run) -> None:
    """Rank 0, which watches the others and does so no more, is missed, and ended by the one that misses it."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "stopped", "--rank", "0")

    assert done.leaked_pids == ()
    assert names(done.output, 0, "does not answer"), done.output


def test_a_rank_that_hangs_ends_the_training(run: Run) -> None:
    """It is ended, too, and shows where it was."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "loops")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, r"has not moved for \d+ s, and rank 0"), done.output
    assert re.search(r'train\.py", line \d+ in fail\b', done.output)


@pytest.mark.parametrize("how", ["killed", "holds the lock"])
def test_a_rank_held_in_a_collective_is_ended(how: str, run: Run) -> None:
    """A rank that waits where no exception reaches it is ended from outside, and says why before."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", how, "--held")

    assert done.leaked_pids == ()
    assert re.search(f"hpu-ddp: rank 0 ends, because {RANK.format(rank=1)} has ", done.output), done.output
