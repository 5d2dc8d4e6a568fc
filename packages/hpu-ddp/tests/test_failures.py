"""Failures of a rank: all others raise `RankFailedError`, exit and leave no process behind.

`nox -s faults` and `nox -s faults -- interruptions` fail and interrupt ranks in every other way, and resume.
"""

import re
import socket
from pathlib import Path

import pytest

from hpu_testing import free_port

from .conftest import Run
from .failure_helpers import TIMEOUT, has_rank_error


def test_rank_error_precedes_what_is_saved_after_it(run: Run, tmp_path: Path) -> None:
    """The job ends although a callback saves on each rank, and rank 0 saves what it has."""
    done = run("train.py", "--timeout", "600", "--fail", "raises", "--save-on-exception", str(tmp_path / "saved"))

    assert (done.code, done.leaked_pids) == (1, ())
    assert "[rank 1] failed: ValueError: invalid batch" in done.output
    assert has_rank_error(done.output, 1, "failed.*: ValueError: invalid batch"), done.output
    assert [file.name for file in (tmp_path / "saved").iterdir()] == ["on_exception.ckpt"]


def test_missing_rank_is_named(run: Run) -> None:
    """The error follows the strategy's timeout and precedes the opening of a device."""
    done = run("train.py", "--timeout", "2", LOCAL_RANK="0", MASTER_PORT=str(free_port()))

    error = r"rank 1 did not join at 127\.0\.0\.1:\d+ within 2 s: check whether they run"
    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(f"RankFailedError: {error}", done.output), done.output
    assert "simulated card" not in done.output


def test_sigterm_on_one_rank_stops_all_ranks(run: Run) -> None:
    """All ranks stop before the same batch, log it and exit with code 0."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "terminated", "--epochs", "-1")

    assert (done.code, done.leaked_pids) == (0, ())
    assert "Error" not in done.output
    assert "Received SIGTERM: all ranks stop after step" in done.output
    assert '{"rank"' not in done.output


def test_launched_rank_exits_if_its_launcher_fails(run: Run) -> None:
    """Rank 0 cannot open the store at a port in use, and rank 1 does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = run("train.py", "--timeout", "600", MASTER_PORT=str(other.getsockname()[1]), seconds=120)

    assert (done.code, done.leaked_pids) == (1, ())
    assert "rank 0 cannot open the store at 127.0.0.1:" in done.output
    assert "MASTER_PORT must be free" in done.output


@pytest.mark.slow
def test_failure_detection_can_be_disabled(run: Run) -> None:
    """Lightning's own observer ends the other rank then."""
    done, failed = (run("train.py", *options, HPU_FAILURE_DETECTION="0") for options in ((), ("--fail", "raises")))

    assert (done.code, done.output.count('{"rank"')) == (0, 2), done.output
    assert failed.code != 0
    assert failed.leaked_pids == ()
    assert "ValueError: invalid batch" in failed.output
