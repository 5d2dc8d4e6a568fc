"""Failures that follow from heartbeats, and the batch before which ranks stop."""

import math
from dataclasses import replace
from typing import Any

import pytest

from hpu_core.distributed.failure_detection import (
    FROZEN,
    SCOPES,
    STOPPED,
    SYNAPSE_EXIT,
    Heartbeat,
    Progress,
    RankFailure,
    RankState,
    SignalDecision,
    Timeouts,
    decide_signals,
    detect_failure,
    detect_leader_failure,
    find_common_wait,
)

TIMEOUTS = Timeouts(progress_limit=100, exit_period=5, heartbeat_interval=1)
NOW = 1000.0


def _rank(
    rank: int, steps: int = 10, scope: str = "", *, progress: float = NOW, pending: bool = False, **more: Any
) -> RankState:
    """Return a rank that trains.

    Args:
        rank: The rank.
        steps: Optimizer steps that its host has finished.
        scope: What the host is in.
        progress: When it last made progress.
        pending: Whether its device has work left.
        **more: Of its heartbeat, `Progress` or `RankState`.
    """
    last_heartbeat, exit_reason = more.pop("last_heartbeat", NOW), more.pop("exit_reason", None)
    fields = {name: more.pop(name) for name in Progress._fields if name in more}
    stage = {"training step": 1, "backward": 2}.get(scope, 0)
    place = {"steps": steps, "batch": int(stage > 0), "stage": stage, "scope": SCOPES.index(scope)}
    heartbeat = Heartbeat(
        progress=Progress(**{**place, "recorded": int(pending), **fields}), **{"training": True, **more}
    )
    return RankState(rank, _name(rank), heartbeat, progress, last_heartbeat, exit_reason)


def _detect(*ranks: RankState) -> RankFailure | None:
    return detect_failure(ranks, NOW, TIMEOUTS)


def _name(rank: int) -> str:
    return f"rank {rank} (pid {100 + rank} on node)"


@pytest.mark.parametrize(
    "ranks",
    [
        [_rank(0, 12, pending=True), _rank(1), _rank(2, 11)],
        [_rank(0, progress=0), _rank(1, progress=0)],
        [_rank(0, 11, pending=True, progress=NOW - 99), _rank(1, progress=0)],
        [_rank(0, 11, pending=True, progress=0), _rank(1, progress=NOW - 1)],
        [_rank(0, 11, pending=True), _rank(1, last_heartbeat=0, progress=0)],
        [_rank(0, 11, "backward"), *(_rank(rank, pending=True, progress=0, last_heartbeat=0) for rank in (1, 2))],
        [_rank(0), _rank(1, exit_reason="exit code 0", training=False)],
        [_rank(0, pending=True, progress=NOW - 99), _rank(1, training=False)],
        [_rank(0, scope="evaluation step", progress=0), _rank(1, training=False)],
        [_rank(0, error="ValueError: no"), _rank(1, error="ValueError: no")],
        [_rank(0, 11, "backward"), _rank(1, error="ValueError: no")],
        [_rank(0, 10, "optimizer step", progress=0), _rank(1, 11, training=False)],
        [_rank(0, 11, "backward", progress=NOW - 2, epochs=1), _rank(1, epoch_batches=4)],
        [_rank(0, 9, "backward", batch=5, progress=NOW - 2), _rank(1, epoch_batches=4)],
    ],
    ids=[
        "ahead",
        "idle together, as in a notebook",
        "stands still for less than the limit",
        "one works",
        "without heartbeats while another makes progress",
        "a machine that cannot reach the store",
        "finished",
        "has finished, while the other's device ends its last step",
        "has finished its part of a prediction",
        "fail together",
        "failed a moment ago",
        "finished, while the other is in its last step",
        "in the next epoch, of which the other has yet to learn",
        "of different numbers of batches, and equal steps",
    ],
)
def test_healthy_ranks_are_no_failure(ranks: list[RankState]) -> None:
    assert _detect(*ranks) is None


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ({"scope": "backward", "exit_reason": "killed by signal 9"}, "exited during backward: killed by signal 9"),
        ({"error": "ValueError: no", "training": False, "exit_reason": "exit code 1"}, "failed: ValueError: no"),
        (
            {"pending": True, "progress": NOW - 601, "exit_reason": "killed by signal 9"},
            f"exited: killed by signal 9 ({SYNAPSE_EXIT})",
        ),
        ({"pending": True, "progress": NOW - 60, "exit_reason": "killed by signal 9"}, "exited: killed by signal 9"),
    ],
    ids=["killed", "failed and exited", "killed by SynapseAI", "killed while its device works"],
)
def test_a_dead_rank_is_named_at_once(peer: dict[str, Any], message: str) -> None:
    assert _detect(_rank(0), _rank(1, **peer)) == RankFailure(f"{_name(1)} {message}", rank=1)


_LEFT = "left the job (its data may have ended earlier)"


@pytest.mark.parametrize(
    "waiting", [{"scope": "backward"}, {"pending": True}], ids=["in a step", "the device has work"]
)
@pytest.mark.parametrize(
    ("peer", "cause"),
    [({"error": "ValueError: no"}, "failed: ValueError: no"), ({"training": False}, _LEFT)],
    ids=["failed", "finished"],
)
def test_a_rank_that_left_is_named_when_another_waits_for_it(
    peer: dict[str, Any], cause: str, waiting: dict[str, Any]
) -> None:
    """Defect N9: the data of a rank may have ended earlier."""
    failure = _detect(_rank(0, 11, progress=NOW - 2, **waiting), _rank(1, **peer))

    where = " during backward" if "scope" in waiting else ""
    assert failure == RankFailure(f"{_name(1)} {cause}; {_name(0)} waits for it{where}", rank=1)


def test_a_rank_that_left_is_named_when_the_device_of_another_waits_in_an_evaluation() -> None:
    """As FSDP's, which gathers parameters. Other ranks may evaluate different numbers of batches."""
    failure = _detect(_rank(0, pending=True, progress=NOW - 101), _rank(1, training=False))

    assert failure == RankFailure(f"{_name(1)} {_LEFT}; {_name(0)} waits for it", rank=1)


@pytest.mark.parametrize(
    "waiting", [{"scope": "backward"}, {"epoch_batches": 6}], ids=["in a step", "its device has work"]
)
def test_a_rank_with_fewer_batches_is_named(waiting: dict[str, Any]) -> None:
    """Before it pairs its next epoch with the rest of this one."""
    failure = _detect(_rank(0, progress=NOW - 2, epoch_batches=4), _rank(1, 11, progress=NOW - 2, **waiting))

    where = " during backward" if "scope" in waiting else ""
    message = f"{_name(0)} had fewer batches: its epoch ended after 4; {_name(1)} waits for it{where}"
    assert failure == RankFailure(message, rank=0)


def test_a_rank_that_left_is_named_when_another_is_in_a_wait_that_it_did_not_enter() -> None:
    failure = _detect(_rank(0, waits=4, call="barrier", progress=NOW - 2), _rank(1, waits=3, training=False))

    assert failure == RankFailure(f"{_name(1)} {_LEFT}; {_name(0)} waits for it during barrier", rank=1)


_AT: dict[str, Any] = {"line": "train.py:7 in load"}
_STILL = "has made no progress for 102 s"


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        # Defect A1: on a card, the hosts are ahead of their devices, and no call of a collective blocks them.
        (
            [_rank(0, 13, pending=True, progress=NOW - 101), _rank(1, progress=NOW - 102, **_AT)],
            f"{_STILL} at train.py:7 in load; {_name(0)} waits for it",
        ),
        (
            [_rank(0, 10, call="barrier", progress=NOW - 101), _rank(1, progress=NOW - 102, **_AT)],
            f"{_STILL} at train.py:7 in load; {_name(0)} waits for it during barrier",
        ),
        (
            [_rank(0, scope="backward", progress=NOW - 101), _rank(1, progress=NOW - 102, **_AT)],
            f"{_STILL} at train.py:7 in load; {_name(0)} waits for it during backward",
        ),
        (
            [_rank(0, scope="backward", progress=NOW - 101), _rank(1, scope="training step", progress=NOW - 102)],
            f"{_STILL} during training step; {_name(0)} waits for it during backward",
        ),
        # Defect A2: clipping by norm reads what all ranks have summed, before there is an event.
        (
            [_rank(0, batch=1, stage=2, progress=NOW - 101), _rank(1, progress=NOW - 102, **_AT)],
            f"{_STILL} at train.py:7 in load; {_name(0)} waits for it",
        ),
        (
            [
                _rank(0, 11, pending=True, progress=NOW - 101),
                _rank(1, 11, pending=True, progress=NOW - 102, last_heartbeat=NOW - 60),
            ],
            f"{_STILL} and has sent no heartbeat for 60 s; {_name(0)} waits for it",
        ),
        (
            [_rank(0, 11, pending=True, progress=NOW - 101), _rank(1, progress=NOW - 102, frozen=FROZEN)],
            f"{_STILL} and its threads stand still; {_name(0)} waits for it",
        ),
        (
            [
                _rank(0, 11, pending=True, progress=NOW - 101),
                _rank(1, 11, pending=True, progress=NOW - 102, frozen=STOPPED),
            ],
            f"{_STILL} and its process is stopped; {_name(0)} waits for it",
        ),
        (
            [_rank(0, pending=True, progress=NOW - 101), _rank(1, progress=NOW - 102), _rank(2, 9, progress=NOW - 101)],
            None,
        ),
    ],
    ids=[
        "the device of the other has work",
        "the other is in a barrier",
        "the other is in its step",
        "lagging in the same step",
        "clipping by norm",
        "without heartbeats",
        "frozen",
        "stopped in the same step",
        "of two that work, the lagging one",
    ],
)
def test_a_rank_that_hangs_is_named_after_the_stall_timeout(ranks: list[RankState], message: str | None) -> None:
    failure = _detect(*ranks)

    assert failure is not None
    if message is None:
        assert failure.rank == 2
    else:
        assert failure == RankFailure(f"{_name(1)} {message}", rank=1)


@pytest.mark.parametrize(
    "ranks",
    [
        [_rank(0, call="barrier", progress=NOW - 105, **_AT), _rank(1, call="broadcast", progress=NOW - 101)],
        [_rank(0, scope="backward", progress=NOW - 105), _rank(1, scope="backward", progress=NOW - 101)],
        # Defect A3: ranks that accumulate different numbers of batches do not lag.
        [
            _rank(0, scope="backward", batch=2, progress=NOW - 105),
            _rank(1, scope="backward", batch=3, progress=NOW - 101),
        ],
        [_rank(0, pending=True, progress=NOW - 105), *(_rank(rank, progress=NOW - 101, **_AT) for rank in (1, 2))],
        [_rank(rank, call="all_reduce", evaluated=4 + rank, progress=NOW - 101) for rank in (0, 1)],
    ],
    ids=["two calls", "the same step", "accumulation", "two ranks work", "batches of an evaluation"],
)
def test_no_rank_is_blamed_if_several_may_be_at_fault(ranks: list[RankState]) -> None:
    """The message has the line where each host stands."""
    failure = _detect(*ranks)

    assert failure is not None
    assert failure.rank is None
    assert failure.message.startswith("no rank has made progress for 101 s: rank ")
    assert all(f"{rank.name}{rank.where}{rank.line}" in failure.message for rank in ranks)
    batches = [rank.heartbeat.progress.evaluated for rank in ranks]
    assert all(f" in evaluation batch {batch}" in failure.message for batch in batches if batch)


_WAITS = f"{_name(1)} waits for it during backward"


@pytest.mark.parametrize(
    ("leader", "message"),
    [
        (_rank(0), None),
        (_rank(0, exit_reason="its store closed"), f"{_name(0)} exited: its store closed"),
        # Defect A10: rank 0 had fewer batches.
        (_rank(0, 9, training=False), f"{_name(0)} {_LEFT}; {_WAITS}"),
        # Rank 0 answers, so that it is the one to name the rank at fault.
        (_rank(0, 10, "backward", progress=0), None),
    ],
    ids=["runs", "died", "finished", "waits as well"],
)
def test_rank_0_is_observed_by_the_others(leader: RankState, message: str | None) -> None:
    own = _rank(1, 10, "backward", progress=NOW - 102)
    failure = detect_leader_failure(leader, own, NOW, TIMEOUTS)

    assert (None if failure is None else failure.message) == message


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
    # A blocked rank keeps the store open for as long as others may take to read of a failure.
    assert 2 * timeouts.heartbeat_interval <= timeouts.exit_period


def test_a_killed_rank_of_thousands_is_known_everywhere_in_15_s() -> None:
    assert Timeouts.from_timeout(1800, 4096).detection_latency <= 15


@pytest.mark.parametrize(
    "heartbeat",
    [
        Heartbeat(),
        Heartbeat(
            3, 7, Progress(9, 8), "barrier", training=True, waiting=(7, 2), batches=math.inf, epochs=1, epoch_batches=4
        ),
        Heartbeat(failure=RankFailure("rank 1 exited", 1), decision=SignalDecision((4, 0), (15,)), common_wait=3),
    ],
    ids=["new", "of a rank", "of rank 0"],
)
def test_a_heartbeat_is_read_as_it_was_written(heartbeat: Heartbeat) -> None:
    assert Heartbeat.from_json(heartbeat.to_json()) == heartbeat


def test_a_healthy_heartbeat_is_short() -> None:
    """Rank 0 of thousands reads as many of them in each interval."""
    assert len(Heartbeat(1, 12_345, Progress(*[98_765] * 11), training=True).to_json()) < 160


def test_a_deadlock_of_many_ranks_names_a_few() -> None:
    failure = _detect(*(_rank(rank, call="barrier", progress=0) for rank in range(20)))

    assert failure is not None
    assert failure.message.endswith("rank 7 (pid 107 on node) during barrier, and 12 more")


@pytest.mark.parametrize(
    ("before", "after", "is_progress"),
    [
        (Progress(), Progress(moves=1), True),
        (Progress(), Progress(), False),
        (Progress(moves=3, recorded=1), Progress(moves=4, recorded=2), False),
        (Progress(moves=3, recorded=1), Progress(moves=3, recorded=1, finished=1), True),
        (Progress(moves=3), Progress(moves=4, recorded=1), True),
    ],
    ids=[
        "the host moves",
        "a heartbeat alone",
        "the host runs ahead",
        "the device finishes a step",
        "work is launched",
    ],
)
def test_progress_is_that_of_the_device_while_it_has_work(before: Progress, after: Progress, is_progress: bool) -> None:
    state = _rank(1, progress=0, last_heartbeat=0)
    state.heartbeat.progress = before
    state.update(replace(state.heartbeat, sequence=1, progress=after), NOW)

    assert (state.last_progress_time, state.last_heartbeat_time) == (NOW if is_progress else 0, NOW)


def test_a_heartbeat_that_was_read_before_is_not_new() -> None:
    state = _rank(1, last_heartbeat=0)
    state.update(replace(state.heartbeat), NOW)

    assert state.last_heartbeat_time == 0


def _handles_an_error(rank: int, steps: int = 10, **more: Any) -> RankState:
    return _rank(rank, steps, **{"waits": 3, "pending_error": "ValueError: no", "progress": NOW - 2, **more})


_LEADS: dict[str, dict[str, Any]] = {
    "lagging": {"steps": 9},
    "at the same step": {},
    "in the next step": {"batch": 1, "stage": 2, "scope": "backward"},
    "a step ahead": {"steps": 11},
}
_CALLS: dict[str, dict[str, Any]] = {
    "its device has work": {"waits": 3, "pending": True},
    "works for itself": {"waits": 3},
    "in the rest of the last call": {"waits": 3, "call": "broadcast_object_list"},
    "at the end of the epoch": {"waits": 3, "epoch_batches": 4},
    "in the same call": {"waits": 4, "call": "barrier"},
    "handles an error before the same call": {"waits": 3, "pending_error": "KeyboardInterrupt"},
    "in another call of this number": {"waits": 4, "wait": 1, "call": "all_reduce"},
    "past another call of this number": {"waits": 4, "wait": 1, "pending": True},
    "handles an error before a later call": {"waits": 4, "pending_error": "KeyboardInterrupt"},
}
# Rank 1 handles an error at step 10, before its fourth call. How many seconds rank 0 may wait before it has failed.
_LIMITS: dict[str, tuple[int | None, ...]] = {
    # lagging, at the same step, in the next step, a step ahead
    "its device has work": (None, None, 1, 1),
    "works for itself": (None, None, 1, None),
    "in the rest of the last call": (5, 5, 1, 1),
    "at the end of the epoch": (5, 5, 1, 1),
    "in the same call": (None, None, None, None),
    "handles an error before the same call": (None, None, None, None),
    "in another call of this number": (1, 1, 1, 1),
    "past another call of this number": (1, 1, 1, 1),
    "handles an error before a later call": (1, 1, 1, 1),
}


@pytest.mark.parametrize(
    ("lead", "call", "limit"),
    [
        pytest.param(_LEADS[lead], _CALLS[call], limit, id=f"{lead}, {call}")
        for call, limits in _LIMITS.items()
        for lead, limit in zip(_LEADS, limits, strict=True)
    ],
)
def test_a_rank_that_handles_an_error_has_failed_once_another_waits_elsewhere(
    lead: dict[str, Any], call: dict[str, Any], limit: int | None
) -> None:
    """Else the ranks meet in the call, and handle the error together."""

    def detect(seconds: int) -> RankFailure | None:
        return _detect(_rank(0, **{**lead, **call}, progress=NOW - seconds), _handles_an_error(1, progress=NOW))

    assert detect(limit or 99) is None
    if limit is not None:
        failure = detect(limit + 1)
        assert failure is not None
        assert failure.rank == 1
        assert failure.message.startswith(f"{_name(1)} failed: ValueError: no; {_name(0)} waits for it")


@pytest.mark.parametrize(
    ("leader", "rank"),
    [
        (_rank(0, 11, "backward", common_wait=4, progress=NOW - 2), _handles_an_error(1)),
        (_handles_an_error(0, 11, common_wait=4), _handles_an_error(1, waits=4)),
    ],
    ids=["the rank", "the other"],
)
def test_a_rank_whose_call_is_confirmed_goes_on(leader: RankState, rank: RankState) -> None:
    """Before the others read that."""
    assert _detect(leader, rank) is None


def test_a_rank_that_handles_an_error_is_not_one_that_has_more_batches() -> None:
    assert _detect(_rank(0, epoch_batches=4, progress=NOW - 4), _handles_an_error(1, 11)) is None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([_rank(0, waits=4, call="barrier"), _handles_an_error(1)], 4),
        ([_handles_an_error(0), _handles_an_error(1)], 4),
        ([_rank(0, waits=4, call="barrier"), _rank(1, waits=4, call="barrier")], 0),
        ([_rank(0, waits=3), _handles_an_error(1)], 0),
        ([_rank(0, waits=4, wait=1, call="all_reduce"), _handles_an_error(1)], 0),
    ],
    ids=["the same", "both with an error", "without an error", "lagging", "another call"],
)
def test_a_wait_that_all_ranks_enter_is_confirmed(ranks: list[RankState], expected: int) -> None:
    assert find_common_wait([rank.heartbeat for rank in ranks]) == expected


def _takes(training: int, evaluation: int = 0, of: float = 0) -> Heartbeat:
    return Heartbeat(training=True, progress=Progress(batches=training, evaluated=evaluation), batches=of)


def _waits_before(training: int, evaluation: int = 0, of: float = 0) -> Heartbeat:
    taken = (training, evaluation - 1) if evaluation else (training - 1, 0)
    return replace(_takes(*taken, of), waiting=(training, evaluation), signals=TERM)


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
        "one lags",
        "one is in the batch",
        "one has taken the next",
        "one is ahead by several",
        "one waits before the next",
        "a rank that stopped looks like one that took it",
        "a batch that one rank had to take is taken by all",
        "a decision for a later batch lets earlier ones pass",
        "all wait before the next batch",
        "all wait in an evaluation",
        "one is not yet in the evaluation",
        "one is in the batch of the evaluation",
        "one is ahead in the evaluation",
        "one has ended the evaluation",
        "an evaluation with other numbers of batches ends first",
        "an evaluation of unknown length ends first",
    ],
)
def test_all_ranks_stop_before_the_same_batch(
    ranks: list[Heartbeat], last: SignalDecision, expected: SignalDecision | None
) -> None:
    assert decide_signals(ranks, last) == expected
