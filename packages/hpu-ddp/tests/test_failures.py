"""Failures of a rank: all others raise `RankFailedError`, exit and leave no process behind."""

import json
import re
import socket
from pathlib import Path

import pytest

from hpu_testing import free_port

from .conftest import Run
from .failure_helpers import TIMEOUT, has_rank_error


# `test_hangs` kills a rank as well.
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_is_named(rank: int, run: Run) -> None:
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "killed", "--rank", str(rank))

    assert done.code != 0
    assert done.leaked_pids == ()
    assert has_rank_error(done.output, rank, r"exited.*: (killed by signal 9|its (store|process))"), done.output


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raises", "ValueError: invalid batch"),
        pytest.param("interrupted", "KeyboardInterrupt", marks=pytest.mark.slow),
    ],
)
def test_rank_error_precedes_what_is_saved_after_it(how: str, error: str, run: Run, tmp_path: Path) -> None:
    """The job ends although a callback saves on each rank, and rank 0 saves what it has."""
    done = run("train.py", "--timeout", "600", "--fail", how, "--save-on-exception", str(tmp_path / "saved"))

    assert (done.code, done.leaked_pids) == (1, ())
    assert f"[rank 1] failed: {error}" in done.output
    assert has_rank_error(done.output, 1, f"failed.*: {error}"), done.output
    assert [file.name for file in (tmp_path / "saved").iterdir()] == ["on_exception.ckpt"]


@pytest.mark.slow
def test_rank_with_fewer_batches_is_named(run: Run) -> None:
    """Before its next epoch, whose first step would meet the others' last ones."""
    done = run("train.py", "--timeout", str(TIMEOUT), "--fail", "leaves")

    assert (done.code, done.leaked_pids) == (1, ())
    assert has_rank_error(done.output, 1, r"had fewer batches in this epoch; rank 0"), done.output
    assert '{"rank":' not in done.output


@pytest.mark.parametrize(
    ("present", "error"),
    [
        ("0", r"rank 1 did not join at 127\.0\.0\.1:\d+ within 2 s: check whether they run"),
        pytest.param(
            "1",
            r"rank 1 found no rank 0 at 127\.0\.0\.1:\d+ within 2 s: .* Check that rank 0 runs there",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_missing_rank_is_named(present: str, error: str, run: Run) -> None:
    """The error follows the strategy's timeout and precedes the opening of a device."""
    done = run("train.py", "--timeout", "2", LOCAL_RANK=present, MASTER_PORT=str(free_port()))

    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(f"RankFailedError: {error}", done.output), done.output
    assert "simulated card" not in done.output


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_sigterm_on_one_rank_stops_all_ranks(rank: int, run: Run) -> None:
    """All ranks stop before the same batch, log it and exit with code 0."""
    failure = ["--fail", "terminated", "--rank", str(rank), "--epochs", "-1"]
    done = run("train.py", "--timeout", str(TIMEOUT), *failure)

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


@pytest.mark.slow
def test_resume_after_a_killed_rank(run: Run, tmp_path: Path) -> None:
    """Resumed from the last checkpoint, a training reaches the same weights as an uninterrupted one."""
    saving = ("--timeout", str(TIMEOUT), "--epochs", "3", "--checkpoints")
    uninterrupted = run("train.py", *saving, str(tmp_path / "uninterrupted"))
    killed = run("train.py", *saving, str(tmp_path / "killed"), "--fail", "killed", "--batch", "8")
    resumed = run("train.py", *saving, str(tmp_path / "killed"))

    assert killed.code != 0
    assert resumed.code == 0, resumed.output
    expected, actual = (
        [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
        for done in (uninterrupted, resumed)
    )
    assert {report["weights"] for report in actual} == {report["weights"] for report in expected}
    assert {report["steps"] for report in actual} == {18}
