"""Failures of a rank: every other one raises an error that names it, exits and leaves no process behind."""

import json
import re
import socket
from pathlib import Path

import pytest

from hpu_sim.testing import free_port

from .conftest import Run
from .failure_helpers import TIMEOUT, names


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_training(rank: int, run: Run) -> None:
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "killed", "--rank", str(rank))

    assert done.code != 0
    assert done.leaked_pids == ()
    assert names(done.output, rank, r"exited.*: (killed by signal 9|its store closed)"), done.output


def test_an_error_ends_the_training(run: Run) -> None:
    """The error of the other rank has the text of the first one."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "raises")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, "failed.*: ValueError: no such luck"), done.output
    # That of the rank that failed.
    assert done.output.count("Traceback (most recent call last)") == 1, done.output


def test_a_rank_that_leaves_ends_the_training(run: Run) -> None:
    """The other rank does not wait forever for one that has finished alone."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "leaves")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, "left the job; rank 0"), done.output
    assert '{"rank": 1' in done.output


@pytest.mark.parametrize(
    ("present", "error"),
    [
        ("0", r"rank 1 did not join at 127\.0\.0\.1:\d+ within 2 s: check whether they run"),
        ("1", r"rank 1 found no rank 0 at 127\.0\.0\.1:\d+ within 2 s: .* Check that rank 0 runs there"),
    ],
)
def test_a_rank_that_does_not_join_is_named(present: str, error: str, run: Run) -> None:
    """The error comes after the strategy's timeout, and before a device is opened."""
    done = run("train.py", "--timeout", "2", LOCAL_RANK=present, MASTER_PORT=str(free_port()))

    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(f"RankFailedError: {error}", done.output), done.output
    assert "simulated card" not in done.output


@pytest.mark.parametrize("rank", [0, 1])
def test_on_sigterm_all_ranks_stop(rank: int, run: Run) -> None:
    """Whichever rank receives it: all stop before the same batch, say so and exit with 0, as Lightning's own do."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "terminated", "--rank", str(rank), "--epochs", "50")

    assert (done.code, done.leaked_pids) == (0, ())
    assert "Error" not in done.output
    assert "Received SIGTERM: all ranks stop after step" in done.output
    assert '{"rank"' not in done.output


def test_launched_ranks_exit_with_their_launcher(run: Run) -> None:
    """Another program at MASTER_PORT: rank 0 cannot open the store, and rank 1 does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = run("train.py", "--timeout", "600", MASTER_PORT=str(other.getsockname()[1]), seconds=120)

    assert (done.code, done.leaked_pids) == (1, ())
    assert "rank 0 cannot open the store at 127.0.0.1:" in done.output
    assert "MASTER_PORT must be free" in done.output


def test_failure_detection_can_be_switched_off(run: Run) -> None:
    done = run("train.py", HPU_FAILURE_DETECTION="0")

    assert done.code == 0, done.output
    assert done.output.count('{"rank"') == 2


def test_a_killed_training_resumes(run: Run, tmp_path: Path) -> None:
    """Resumed from the last checkpoint, a training reaches the weights of an undisturbed one."""
    saving = ("--timeout", str(TIMEOUT), "--epochs", "3", "--checkpoints")
    undisturbed = run("train.py", *saving, str(tmp_path / "undisturbed"))
    killed = run("train.py", *saving, str(tmp_path / "killed"), "--fail", "killed", "--batch", "8")
    resumed = run("train.py", *saving, str(tmp_path / "killed"))

    assert killed.code != 0
    assert resumed.code == 0, resumed.output
    expected, reached = (
        [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
        for done in (undisturbed, resumed)
    )
    assert {report["weights"] for report in reached} == {report["weights"] for report in expected}
    assert {report["steps"] for report in reached} == {18}
