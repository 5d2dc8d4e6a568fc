"""What becomes of a training that loses a rank: all others end, soon, with its name, and leave nothing behind."""

import json
import re
from pathlib import Path

import pytest

from hpu_sim.testing import free_port

from .conftest import Run
from .losing import TIMEOUT, names


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_training(rank: int, run: Run) -> None:
    """The other rank raises an error with the name of the one that was killed."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "killed", "--rank", str(rank))

    assert done.code != 0
    assert done.leaked_pids == ()
    assert names(done.output, rank, "has died"), done.output


def test_an_error_ends_the_training(run: Run) -> None:
    """The other rank's error says what went wrong on the one that failed."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "raises")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, "failed: ValueError: no such luck; rank 0"), done.output


def test_a_rank_that_leaves_ends_the_training(run: Run) -> None:
    """Where one rank alone stops, the others do not wait for it for good."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "leaves")

    assert (done.code, done.leaked_pids) == (1, ())
    assert names(done.output, 1, "has left the training; rank 0"), done.output
    assert '{"rank": 1' in done.output


@pytest.mark.parametrize(
    ("present", "error"),
    [
        ("0", r"rank 1 did not come to 127\.0\.0\.1, port \d+ within 2 s: see whether it runs"),
        ("1", r"rank 1 has not found rank 0 at 127\.0\.0\.1, port \d+ within 2 s: .* See that rank 0 runs there"),
    ],
)
def test_a_rank_that_does_not_come_is_named(present: str, error: str, run: Run) -> None:
    """Whoever was never started is missed by name, after the user's timeout, and no card has been opened by then."""
    done = run("train.py", "--timeout", "2", LOCAL_RANK=present, MASTER_PORT=str(free_port()))

    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(f"RankFailedError: {error}", done.output), done.output
    assert "simulated card" not in done.output


@pytest.mark.parametrize("rank", [0, 1])
def test_on_sigterm_all_end_together(rank: int, run: Run) -> None:
    """Whichever rank is told to end, all end before the same batch, and none with an error."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "terminated", "--rank", str(rank), "--epochs", "50")

    assert (done.code, done.leaked_pids) == (0, ())
    assert "Error" not in done.output
    assert '{"rank"' not in done.output


def test_a_killed_training_resumes(run: Run, tmp_path: Path) -> None:
    """From the last checkpoint, training goes on and reaches what an undisturbed one reaches."""
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
