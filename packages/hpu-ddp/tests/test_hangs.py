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
    silent = "has sent no heartbeat|its threads stand still"
    assert has_rank_error(done.output, 1, f"has made no progress for .* and ({silent})"), done.output


@pytest.mark.parametrize(
    ("rank", "options"),
    [
        pytest.param(0, ["--before", "forward"], id="while the others wait for its buffers"),
        pytest.param(1, ["--before", "metric"], id="while the others compute a metric", marks=pytest.mark.slow),
        pytest.param(1, [], id="in a forward pass", marks=pytest.mark.slow),
    ],
)
def test_hung_rank_exits_and_is_named(rank: int, options: list[str], run: Run) -> None:
    """The rank that hangs prints its stack."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", "loops", "--rank", str(rank), *options)

    assert (done.code, done.leaked_pids) == (1, ())
    assert has_rank_error(done.output, rank, rf"has made no progress for \d+ s.*; rank {1 - rank}"), done.output
    assert re.search(r'train\.py", line \d+ in fail\b', done.output)


@pytest.mark.parametrize(
    ("how", "rank", "held"),
    [
        pytest.param("killed", 1, "call", marks=pytest.mark.slow),
        ("killed", 1, "GIL"),
        pytest.param("killed", 0, "GIL", marks=pytest.mark.slow),
        pytest.param("holds the GIL", 1, "call", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_held_exits(how: str, rank: int, held: str, run: Run) -> None:
    """A rank that cannot raise prints the cause and exits after a grace period; with the GIL, its guard does both."""
    done = run("train.py", "--timeout", str(HANG_TIMEOUT), "--fail", how, "--rank", str(rank), "--held", held)

    assert done.leaked_pids == ()
    named = rf"\[rank {1 - rank}\] aborting: {RANK.format(rank=rank)} (exited|has )"
    assert re.search(named, done.output), done.output
