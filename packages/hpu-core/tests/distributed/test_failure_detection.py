"""Failures that follow from heartbeats, and the batch before which ranks stop."""

import math
from dataclasses import replace
from typing import Any

import pytest

from hpu_core.distributed.failure_detection import (
    Heartbeat,
    RankFailure,
    RankInfo,
    RankState,
    SignalDecision,
    Timeouts,
    confirm_collective,
    decide_signals,
    describe_exit,
    detect_failure,
    detect_leader_failure,
)

TIMEOUTS = Timeouts(stall=100, exit_grace=5, heartbeat_interval=1)
NOW = 1000.0


def _rank(rank: int, seq: int = 10, collective: str | None = None, *, progress: float = NOW, **more: Any) -> RankState:
    """Return a rank that trains; `more` is for its heartbeat, except `heard` and `exit_reason`."""
    heard, exit_reason, beat = more.pop("heard", NOW), more.pop("exit_reason", None), more
    heartbeat = Heartbeat(collective_seq=seq, collective=collective, **{"training": True, **beat})
    return RankState(RankInfo(rank, "node", 100 + rank), heartbeat, progress, heard, exit_reason)


def _detect(*ranks: RankState) -> RankFailure | None:
    return detect_failure(ranks, NOW, TIMEOUTS)


def _name(rank: int) -> str:
    return f"rank {rank} (pid {100 + rank} on node)"


@pytest.mark.parametrize(
    "ranks",
    [
        [_rank(0, 12, "backward"), _rank(1), _rank(2, 11)],
        [_rank(0, progress=0), _rank(1, progress=0)],
        [_rank(0, 11, "backward", progress=NOW - 99), _rank(1, progress=0)],
        [_rank(0, 11, "backward", progress=0), _rank(1, progress=NOW - 1)],
        [_rank(0, collective="barrier", progress=0), _rank(1, progress=0)],
        [_rank(0, 11, "backward"), _rank(1, heard=0, progress=0)],
        [_rank(0), _rank(1, exit_reason="exit code 0", training=False)],
        [_rank(0), _rank(1, exit_reason="exit code 0", closed=True)],
        [_rank(0, error="ValueError: no"), _rank(1, error="ValueError: no")],
        [_rank(0, 11, "backward"), _rank(1, error="ValueError: no")],
        [_rank(0, 10, "barrier", progress=NOW - 2), _rank(1, 10, error="ValueError: no")],
    ],
    ids=[
        "ahead",
        "slow together",
        "waits less than the limit",
        "the last rank advances",
        "one rank computes",
        "silent while collectives complete",
        "finished",
        "closed",
        "fail together",
        "failed a moment ago",
        "failed after the collective",
    ],
)
def test_healthy_ranks_are_no_failure(ranks: list[RankState]) -> None:
    assert _detect(*ranks) is None


def test_a_dead_rank_is_named_with_its_collective() -> None:
    failure = _detect(_rank(0), _rank(1, collective="backward", exit_reason="killed by signal 9"))

    assert failure == RankFailure(f"{_name(1)} exited during backward: killed by signal 9", rank=1)


def test_a_rank_that_failed_and_exited_is_named_at_once() -> None:
    failure = _detect(_rank(0), _rank(1, error="ValueError: no", training=False, exit_reason="exit code 1"))

    assert failure == RankFailure(f"{_name(1)} failed: ValueError: no", rank=1)


def test_a_failed_rank_is_named_when_another_waits_for_it() -> None:
    failure = _detect(_rank(0, 11, "backward", progress=NOW - 2), _rank(1, error="ValueError: no"))

    message = f"{_name(1)} failed: ValueError: no; {_name(0)} waits for it during backward"
    assert failure == RankFailure(message, rank=1)


def test_a_rank_that_closed_early_is_named_when_another_waits_for_it() -> None:
    failure = _detect(_rank(0, 11, "backward", progress=NOW - 2), _rank(1, closed=True))

    assert failure is not None
    assert failure.message == f"{_name(1)} left the job; {_name(0)} waits for it during backward"


def test_a_straggler_is_named_after_the_stall_timeout() -> None:
    failure = _detect(_rank(0, 11, "backward", progress=NOW - 101), _rank(1, progress=NOW - 102))

    message = f"{_name(1)} has made no progress for 102 s; {_name(0)} waits for it during backward"
    assert failure == RankFailure(message, rank=1)


def test_the_last_of_several_stragglers_is_named() -> None:
    failure = _detect(_rank(0, 12, "backward", progress=0), _rank(1, 11, progress=0), _rank(2, 10, progress=0))

    assert failure is not None
    assert failure.rank == 2


def test_a_silent_straggler_is_named_as_silent() -> None:
    failure = _detect(_rank(0, 11, "backward", progress=0), _rank(1, progress=0, heard=NOW - 60))

    assert failure is not None
    assert "and has sent no heartbeat for 60 s" in failure.message


@pytest.mark.parametrize("collectives", [10, 11], ids=["left since", "the same one"])
def test_a_silent_rank_is_named_though_its_last_heartbeat_was_from_a_collective(collectives: int) -> None:
    waiting = _rank(0, 11, "backward", progress=NOW - 101)
    failure = _detect(waiting, _rank(1, collectives, "setup", progress=NOW - 103, heard=NOW - 103))

    message = f"{_name(1)} has made no progress for 103 s during setup and has sent no heartbeat for 103 s; {_name(0)}"
    assert failure == RankFailure(f"{message} waits for it during backward", rank=1)


def test_a_deadlock_names_every_collective() -> None:
    """All ranks have entered as many collectives, but different ones, so that no single rank is at fault."""
    failure = _detect(
        _rank(0, collective="barrier", progress=NOW - 105), _rank(1, collective="broadcast", progress=NOW - 101)
    )

    places = f"{_name(0)} during barrier, {_name(1)} during broadcast"
    assert failure == RankFailure(f"no rank has made progress for 105 s: {places}")


_WAITS = f"{_name(1)} waits for it during backward"


@pytest.mark.parametrize(
    ("leader", "message"),
    [
        (_rank(0), None),
        (_rank(0, exit_reason="its store closed"), f"{_name(0)} exited: its store closed"),
        (_rank(0, heard=NOW - 101), f"{_name(0)} has sent no heartbeat for 101 s; {_WAITS}"),
        (_rank(0, 9, closed=True), f"{_name(0)} left the job; {_WAITS}"),
        # Rank 0 answers, so that it is the one to name the rank at fault.
        (_rank(0, 10, "backward", progress=0), None),
    ],
    ids=["runs", "died", "silent", "left", "waits as well"],
)
def test_rank_0_is_observed_by_the_others(leader: RankState, message: str | None) -> None:
    own = _rank(1, 10, "backward", progress=NOW - 102)
    failure = detect_leader_failure(leader, own, NOW, TIMEOUTS)

    assert (None if failure is None else failure.message) == message


def test_a_silent_rank_0_is_no_failure_for_a_rank_that_does_not_wait() -> None:
    assert detect_leader_failure(_rank(0, heard=0), _rank(1), NOW, TIMEOUTS) is None


@pytest.mark.parametrize(
    ("timeout", "expected"), [(1800, Timeouts(1785, 5, 1)), (24, Timeouts(12, 4, 1)), (12, Timeouts(6, 2, 0.6))]
)
def test_timeouts_add_up_to_the_strategys(timeout: float, expected: Timeouts) -> None:
    assert Timeouts.from_timeout(timeout, 8) == expected


@pytest.mark.parametrize("world_size", [8, 1024, 4096, 16_384])
def test_ranks_of_a_large_job_send_heartbeats_less_often(world_size: int) -> None:
    timeouts = Timeouts.from_timeout(1800, world_size)

    assert world_size / timeouts.heartbeat_interval <= 1400
    assert world_size / timeouts.wait_interval <= 2560
    # A held rank keeps the store open for as long as others may take to read of a failure.
    assert 2 * timeouts.heartbeat_interval <= timeouts.exit_grace


def test_a_killed_rank_of_thousands_is_known_everywhere_in_15_s() -> None:
    assert Timeouts.from_timeout(1800, 4096).detection_latency <= 15


@pytest.mark.parametrize(
    "heartbeat",
    [
        Heartbeat(),
        Heartbeat(3, 7, 12, "backward", training=True, batch=(7, 2), evaluated=math.inf, signals=[15]),
        Heartbeat(
            failure=RankFailure("rank 1 exited", 1),
            decision=SignalDecision((4, 0), (15,)),
            confirmed=(3, "gather"),
        ),
    ],
    ids=["new", "of a rank", "of rank 0"],
)
def test_a_heartbeat_is_read_as_it_was_written(heartbeat: Heartbeat) -> None:
    assert Heartbeat.from_json(heartbeat.to_json().encode()) == heartbeat


def test_a_healthy_heartbeat_is_short() -> None:
    """Rank 0 of thousands reads as many of them in each interval."""
    assert len(Heartbeat(1, 12_345, 98_765, "backward", training=True, batch=(12_345, 0)).to_json()) < 128


def test_a_deadlock_of_many_ranks_names_a_few() -> None:
    failure = _detect(*(_rank(rank, collective="barrier", progress=0) for rank in range(20)))

    assert failure is not None
    assert failure.message.endswith("rank 7 (pid 107 on node) during barrier, and 12 more")


def test_silent_ranks_are_no_failure_while_collectives_complete() -> None:
    """Their machine cannot reach the store, and HCCL has a network of its own."""
    silent = [_rank(rank, collective="backward", progress=0, heard=0) for rank in (1, 2)]

    assert _detect(_rank(0, 90, "backward", progress=NOW), *silent) is None


def test_progress_is_a_change_of_collective() -> None:
    state = _rank(1, progress=0, heard=0)
    state.update(replace(state.heartbeat, beat=1, collective_seq=11), NOW)

    assert (state.last_progress_time, state.last_heartbeat_time) == (NOW, NOW)


def test_a_heartbeat_alone_is_not_progress() -> None:
    state = _rank(1, progress=0, heard=0)
    state.update(replace(state.heartbeat, beat=1), NOW)

    assert (state.last_progress_time, state.last_heartbeat_time) == (0, NOW)


def test_a_heartbeat_that_was_read_before_is_not_new() -> None:
    state = _rank(1, heard=0)
    state.update(replace(state.heartbeat), NOW)

    assert state.last_heartbeat_time == 0


@pytest.mark.parametrize(("code", "text"), [(-9, "killed by signal 9"), (1, "exit code 1")])
def test_exit_codes_are_described(code: int, text: str) -> None:
    assert describe_exit(code) == text


def _handles_an_error(rank: int, seq: int = 11, collective: str = "gather") -> RankState:
    return _rank(rank, seq, collective, handled="ValueError: no")


@pytest.mark.parametrize(
    "peer",
    [_rank(0, 10, "backward"), _rank(0, 10), _rank(0, 11, "gather"), _handles_an_error(0), _handles_an_error(0, 10)],
    ids=["behind", "behind and works", "in the same", "in the same with an error", "behind with an error"],
)
def test_a_rank_that_handles_an_error_waits_for_others(peer: RankState) -> None:
    failure = _detect(peer, _handles_an_error(1))
    assert failure is None or failure.rank == 0


@pytest.mark.parametrize(
    "peer", [_rank(0, 11, "backward"), _rank(0, 11), _rank(0, 12, "gather")], ids=["in another", "after it", "ahead"]
)
def test_a_rank_that_handles_an_error_while_others_went_on_has_failed(peer: RankState) -> None:
    failure = _detect(peer, _handles_an_error(1))
    assert failure == RankFailure(f"{_name(1)} failed before gather: ValueError: no", 1)


def test_a_rank_may_leave_a_confirmed_collective_first() -> None:
    assert _detect(_rank(0, 12, confirmed=(11, "gather")), _handles_an_error(1)) is None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([_rank(0, 11, "gather"), _handles_an_error(1)], (11, "gather")),
        ([_rank(0, 11, "gather"), _rank(1, 11, "gather")], None),
        ([_rank(0, 10), _handles_an_error(1)], None),
        ([_rank(0, 11), _rank(1, 11, handled="ValueError: no")], None),
    ],
    ids=["the same", "without an error", "behind", "between collectives"],
)
def test_a_collective_that_all_ranks_enter_is_confirmed(
    ranks: list[RankState], expected: tuple[int, str] | None
) -> None:
    assert confirm_collective([rank.heartbeat for rank in ranks]) == expected


def _takes(training: int, evaluation: int = 0, of: float = 0) -> Heartbeat:
    return Heartbeat(training=True, batch=(training, evaluation), evaluated=of)


def _waits_before(training: int, evaluation: int = 0, of: float = 0) -> Heartbeat:
    return replace(_takes(training, evaluation, of), is_waiting=True, signals=[*TERM])


def _decision(training: int, evaluation: float = 0, signals: tuple[int, ...] = ()) -> SignalDecision:
    return SignalDecision((training, evaluation), signals)


OPEN = SignalDecision()
TERM = (15,)
ALL = math.inf


@pytest.mark.parametrize(
    ("ranks", "last", "expected"),
    [
        ([_takes(3), _takes(4)], OPEN, None),
        ([_takes(0), _takes(0)], OPEN, None),
        ([_waits_before(4)] * 3, OPEN, _decision(4, signals=TERM)),
        ([_waits_before(4), _takes(3)], OPEN, None),
        ([_waits_before(4), _takes(4)], OPEN, _decision(4)),
        ([_waits_before(4), _takes(5)], OPEN, _decision(5)),
        ([_waits_before(4), _waits_before(9), _takes(3)], OPEN, _decision(8, ALL)),
        ([_waits_before(4), _waits_before(5)], OPEN, _decision(4, ALL)),
        ([_takes(4), _waits_before(4)], _decision(4, signals=TERM), _decision(4, signals=TERM)),
        ([_waits_before(4), _waits_before(4)], _decision(4), _decision(4)),
        ([_waits_before(5), _waits_before(4)], _decision(5, signals=TERM), _decision(5, signals=TERM)),
        ([_waits_before(5), _waits_before(5)], _decision(4), _decision(5, signals=TERM)),
        ([_waits_before(0, 2, 9)] * 2, OPEN, _decision(0, 2, TERM)),
        ([_waits_before(4, 2, 9), _takes(4)], OPEN, None),
        ([_waits_before(4, 2, 9), _takes(4, 2, 9)], OPEN, _decision(4, 2)),
        ([_waits_before(4, 2, 9), _waits_before(4, 7, 9)], OPEN, _decision(4, 6)),
        ([_waits_before(4, 9, 9), _waits_before(5)], OPEN, _decision(4, ALL)),
        ([_waits_before(4, 2, 9), _takes(4, 1, 8)], OPEN, _decision(4, ALL)),
        ([_waits_before(4, 2, ALL)] * 2, OPEN, _decision(4, ALL)),
    ],
    ids=[
        "no rank waits",
        "before the first batch",
        "all wait",
        "one is behind",
        "one is in the batch",
        "one has taken the next",
        "one is ahead by several",
        "one waits before the next",
        "a rank that stopped looks like one that took it",
        "a batch that one rank was told to take is taken by all",
        "a decision for a later batch lets earlier ones pass",
        "all wait before the next batch",
        "all wait in an evaluation",
        "one is not yet in the evaluation",
        "one is in the batch of the evaluation",
        "one is ahead in the evaluation",
        "one is behind the evaluation",
        "an evaluation with other numbers of batches ends first",
        "an evaluation of unknown length ends first",
    ],
)
def test_all_ranks_stop_before_the_same_batch(
    ranks: list[Heartbeat], last: SignalDecision, expected: SignalDecision | None
) -> None:
    assert decide_signals(ranks, last) == expected
