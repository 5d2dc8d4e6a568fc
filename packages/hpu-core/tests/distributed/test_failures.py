"""Failures of jobs: those that must not end, and the failures, one row for each."""

from typing import Any

import pytest

from hpu_core.distributed.failures import Failure, Report, find_failure, find_warning
from hpu_core.distributed.progress import END_OF_EPOCH

LIMIT, DELAY = 100.0, 3.0
STEP: dict[str, Any] = {"in_step": True, "scope": "backward"}
BARRIER: dict[str, Any] = {"wait": "barrier", "waits": 4}
LEFT: dict[str, Any] = {"state": "left", "idle": 5.0}


def _name(rank: int) -> str:
    return f"rank {rank} (pid {100 + rank} on node)"


def _rank(rank: int, steps: int = 10, *, in_step: bool = False, **fields: Any) -> Report:
    """Return a rank that stands still outside of a step, unless its report says something else."""
    defaults = {"count": 7, "place": 2 * steps + in_step, "waits": 3, "idle": LIMIT + 1}
    return Report(rank, _name(rank), **{**defaults, **fields})


def _find(*ranks: Report) -> Failure | None:
    return find_failure(ranks, LIMIT, DELAY)


@pytest.mark.parametrize(
    "ranks",
    [
        [_rank(0, **STEP), _rank(1, **STEP)],
        [_rank(0, **STEP), _rank(1, in_step=True, scope="training step")],
        [_rank(0, **STEP), _rank(1, in_step=True)],
        [_rank(0, **BARRIER), _rank(1)],
        [_rank(0, **BARRIER), _rank(1, **BARRIER)],
        [_rank(0), _rank(1)],
        [_rank(0, **STEP), _rank(1, idle=LIMIT - 1)],
        [_rank(0, idle=1.0, **STEP), _rank(1)],
        [_rank(0, **STEP), _rank(1), _rank(2, idle=1.0, **STEP)],
        [_rank(0, **STEP), _rank(1, scope="evaluation step")],
        [_rank(0, **STEP), _rank(1, count=0)],
        [_rank(0, **STEP), _rank(1, count=0, host=1, elapsed=LIMIT + 1)],
        [_rank(0, 11, **STEP), _rank(1, **STEP)],
        [_rank(0, **STEP), _rank(1, elapsed=99.0, idle=2.0)],
        [_rank(0, **STEP), _rank(1, **STEP, elapsed=99.0, idle=2.0)],
        [_rank(0), _rank(1, is_stopped=True)],
        [_rank(0, **STEP), _rank(1, state="off")],
        [_rank(0, **STEP), _rank(1, 11, state="left")],
        [_rank(0), _rank(1, state="left", exit="exit code 0")],
        [_rank(0, 11, idle=DELAY - 1, **STEP), _rank(1, state="left")],
        [_rank(0, 11, wait=END_OF_EPOCH), _rank(1, wait=END_OF_EPOCH)],
        [_rank(0, in_step=True), _rank(1, 11, wait=END_OF_EPOCH)],
        [_rank(0, wait="barrier"), _rank(1, wait="broadcast")],
        [_rank(0, wait="barrier", idle=4.0, elapsed=2.0), _rank(1, **LEFT)],
        [_rank(0, wait="barrier", idle=2.0), _rank(1, **LEFT)],
        [_rank(0, wait="all-gather"), _rank(1, **LEFT)],
    ],
    ids=[
        "all compile in one step",
        "one is in its forward pass",
        "one accumulates gradients",
        "one downloads under rank_zero_first, or writes a checkpoint",
        "all are in one barrier",
        "all plot, or wait in a group of the program",
        "one works, and the other waits for less than the limit",
        "the one that waits began a moment ago",
        "another one moves",
        "one validates",
        "one has not begun this training",
        "a machine has not begun this training",
        "one compiles, and the other runs ahead",
        "one cannot report, and may be further",
        "one compiles with Python's lock",
        "one is stopped, and none waits",
        "failure detection has failed on one",
        "one has trained to the end",
        "one has finished and exited",
        "one has left a moment ago",
        "all end an epoch with different numbers of steps",
        "different numbers of batches, and equal steps",
        "calls of different names",
        "all have passed the last barrier since one reported, and one's device works on",
        "one came to the last barrier a moment ago",
        "all wait for a device",
    ],
)
def test_a_healthy_job_is_not_ended(ranks: list[Report]) -> None:
    assert _find(*ranks) is None


_STILL = "has made no progress for 101 s"
_LEFT = "left the job (its data may have ended earlier)"


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([_rank(0), _rank(1, error="ValueError: no", scope="backward")], "failed during backward: ValueError: no"),
        ([_rank(0), _rank(1, error="KeyError: 'a'", state="left", exit="exit code 1")], "failed: KeyError: 'a'"),
        ([_rank(0), _rank(1, exit="killed by signal 9", idle=0.0)], "exited: killed by signal 9"),
        (
            [_rank(0, 11, idle=4.0, **STEP), _rank(1, state="left")],
            f"{_LEFT}; {_name(0)} waits for it during backward",
        ),
        ([_rank(0, 12, idle=4.0), _rank(1, state="left")], f"{_LEFT}; {_name(0)} waits for it"),
        ([_rank(0, idle=4.0, **BARRIER), _rank(1, state="left")], f"{_LEFT}; {_name(0)} waits for it during barrier"),
        (
            [_rank(0, idle=4.0, wait=END_OF_EPOCH, waits=4), _rank(1, state="left")],
            f"{_LEFT}; {_name(0)} waits for it during {END_OF_EPOCH}",
        ),
        (
            [_rank(0, wait="barrier", idle=4.0, elapsed=1.0), _rank(1, **LEFT)],
            f"{_LEFT}; {_name(0)} waits for it during barrier",
        ),
        (
            [_rank(0, idle=4.0, **STEP), _rank(1, wait=END_OF_EPOCH, idle=4.0)],
            f"had fewer batches in this epoch; {_name(0)} waits for it during backward",
        ),
        (
            [_rank(0, **STEP), _rank(1, line="train.py:7 in load")],
            f"{_STILL} at train.py:7 in load; {_name(0)} waits for it during backward",
        ),
        ([_rank(0, 12), _rank(1)], f"{_STILL}; {_name(0)} waits for it"),
        ([_rank(0, 12, elapsed=99.0), _rank(1)], f"{_STILL}; {_name(0)} waits for it"),
        ([_rank(0, **STEP), _rank(1, **BARRIER)], f"{_STILL} during barrier; {_name(0)} waits for it during backward"),
        ([_rank(0, 11), _rank(1, 9), _rank(2, 10)], f"{_STILL}; {_name(0)} waits for it"),
        ([_rank(0, 40, wait=END_OF_EPOCH), _rank(1)], f"{_STILL}; {_name(0)} waits for it during {END_OF_EPOCH}"),
        (
            [_rank(0, **STEP), _rank(1, **STEP, is_stopped=True)],
            f"{_STILL} during backward and its process is stopped; {_name(0)} waits for it during backward",
        ),
        (
            [_rank(0, **STEP), _rank(1, **STEP, host=1, idle=1.0, elapsed=100.0)],
            f"{_STILL} during backward and has sent no heartbeat for 100 s; {_name(0)} waits for it during backward",
        ),
        (
            [_rank(0, 11), _rank(1, elapsed=LIMIT, host=1)],
            "has made no progress for 201 s and has sent no heartbeat for 100 s; " + _name(0) + " waits for it",
        ),
    ],
    ids=[
        "raised an error",
        "raised an error and exited",
        "killed",
        "left before a step of the other",
        "left, and the host of the other ran ahead",
        "left before a barrier",
        "left before the end of an epoch",
        "ended its program with a collective that the other has not entered",
        "fewer batches",
        "hangs before a step that the other has entered",
        "hangs, and the hosts of the others ran ahead",
        "hangs, and the other cannot run Python",
        "hangs in a barrier that the other has not entered",
        "hangs behind another one",
        "hangs, and the host of the other ran ahead to the end of the epoch",
        "stopped",
        "its machine is unreachable",
        "its machine is unreachable, and the hosts of the others ran ahead",
    ],
)
def test_a_failed_rank_is_named(ranks: list[Report], message: str) -> None:
    assert _find(*ranks) == Failure(f"{_name(1)} {message}", 1)


@pytest.mark.parametrize(
    "ranks", [[_rank(0, **STEP), _rank(1, **STEP)], [_rank(0, **BARRIER), _rank(1)]], ids=["one step", "a barrier"]
)
def test_in_doubt_the_lines_of_all_hosts_are_a_warning(ranks: list[Report]) -> None:
    ranks[1].line = "train.py:7 in load"
    text = find_warning(ranks, LIMIT)

    assert text is not None
    assert text.startswith("no rank has moved for 100 s; if they work, all is well: rank 0")
    assert f"{_name(1)}{ranks[1].where} at train.py:7 in load" in text


@pytest.mark.parametrize(
    "ranks", [[_rank(0), _rank(1)], [_rank(0, **STEP), _rank(1, idle=1.0)]], ids=["none waits", "one works"]
)
def test_without_doubt_there_is_no_warning(ranks: list[Report]) -> None:
    assert find_warning(ranks, LIMIT) is None
