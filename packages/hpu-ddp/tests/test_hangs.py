"""Hangs: every rank exits within the timeout."""

import re

import pytest

from .conftest import Run
from .failure_helpers import HANG_TIMEOUT, RANK, has_rank_error


@pytest.mark.slow
def test_stopped_rank_is_killed_and_named(run: Run) -> None:
    """Rank 0, which launched the stopped rank, kills it."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "stopped")

    assert done.leaked_pids == ()
    assert has_rank_error(done.output, 1, "has made no progress for .* and its process is stopped"), done.output


@pytest.mark.parametrize(
    ("rank", "options"),
    [
        pytest.param(0, ["--before", "forward"], id="while the others wait for its buffers"),
        pytest.param(1, ["--before", "forward"], id="before a step", marks=pytest.mark.slow),
    ],
)
def test_hung_rank_exits_and_is_named(rank: int, options: list[str], run: Run) -> None:
    """The rank that hangs prints its stack."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "loops", "--rank", str(rank), *options)

    assert (done.code, done.leaked_pids) == (1, ())
    assert has_rank_error(done.output, rank, rf"has made no progress for \d+ s.*; rank {1 - rank}"), done.output
    assert re.search(r'train\.py", line \d+ in fail\b', done.output)


def test_a_rank_that_is_held_exits(run: Run) -> None:
    """A rank that a call of the device holds prints the cause and exits after a grace period."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "killed", "--held")

    assert done.leaked_pids == ()
    named = rf"\[rank 0\] aborting: {RANK.format(rank=1)} exited"
    assert re.search(named, done.output), done.output
