"""When a rank is given up: what is known of the ranks, and what follows."""

from dataclasses import replace
from typing import Any

import pytest

from hpu_ddp._watch._rules import (
    Identity,
    Limits,
    Member,
    Order,
    Progress,
    Verdict,
    judge,
    judge_first,
    order,
)

LIMITS = Limits(patience=100, grace=5, unreachable=60, interval=1)
NOW = 1000.0


def _member(rank: int, at: int = 10, where: str | None = None, since: float = NOW, **more: Any) -> Member:
    """Make a rank that trains; `more` is for its progress, but `lost` and `left`, which are for the member."""
    lost, left = more.pop("lost", None), more.pop("left", False)
    progress = Progress(at, where, **{"active": True, **more})
    return Member(Identity(rank, "node", 100 + rank, "machine"), progress, since, lost, left)


def _judge(*members: Member) -> Verdict | None:
    return judge(members, NOW, LIMITS)


def _name(rank: int) -> str:
    return f"rank {rank} (process {100 + rank} on node)"


def test_ranks_that_move_are_left_alone() -> None:
    """Also if one is ahead of the others."""
    assert _judge(_member(0, 12, "backward"), _member(1), _member(2, 11)) is None


def test_ranks_may_take_their_time_together() -> None:
    """Where nobody is ahead, nobody waits, however long it takes."""
    assert _judge(_member(0, since=0), _member(1, since=0)) is None


def test_a_rank_that_died_is_named() -> None:
    """With the point at which it was."""
    verdict = _judge(_member(0), _member(1, where="backward", lost="has died"))

    assert verdict == Verdict(f"{_name(1)} has died in backward", rank=1)


def test_a_rank_out_of_reach_is_named() -> None:
    """In the words of the connection."""
    verdict = _judge(_member(0), _member(1, lost="cannot be reached any more"))

    assert verdict == Verdict(f"{_name(1)} cannot be reached any more", rank=1)


def test_a_rank_that_has_finished_may_go() -> None:
    """Whether it took its leave or not: its training was over."""
    assert _judge(_member(0), _member(1, lost="has died", active=False)) is None


def test_a_rank_that_takes_its_leave_may_go() -> None:
    """Outside of the Trainer nobody says that a training is over, but the program's end does."""
    assert _judge(_member(0), _member(1, lost="has died", left=True)) is None


def test_a_rank_that_failed_is_missed_by_one_that_waits() -> None:
    """The other one is at a point to which the failed one will not come."""
    verdict = _judge(_member(0, 11, "backward", since=NOW - 2), _member(1, failed="ValueError: no"))

    assert verdict is not None
    assert verdict.text == f"{_name(1)} failed: ValueError: no; {_name(0)} waits for it in backward"
    assert (verdict.rank, verdict.lasted, verdict.victim) == (1, 2, None)


def test_ranks_that_fail_together_are_left_alone() -> None:
    """The same error everywhere is the program's to handle, and it may train again."""
    assert _judge(_member(0, failed="ValueError: no"), _member(1, failed="ValueError: no")) is None


def test_a_failed_rank_is_not_missed_at_once() -> None:
    """The other one may be about to fail as well."""
    assert _judge(_member(0, 11, "backward"), _member(1, failed="ValueError: no")) is None


def test_a_failed_rank_is_not_missed_where_it_has_been() -> None:
    """At a point to which it has come, the other ranks have met it."""
    assert _judge(_member(0, 10, "barrier", since=NOW - 2), _member(1, 10, failed="ValueError: no")) is None


def test_a_rank_that_left_is_missed_by_one_that_waits() -> None:
    """As one that failed."""
    verdict = _judge(_member(0, 11, "backward", since=NOW - 2), _member(1, lost="has died", left=True))

    assert verdict is not None
    assert verdict.text == f"{_name(1)} has left the training; {_name(0)} waits for it in backward"


def test_a_late_rank_is_given_up() -> None:
    """It is behind another one and has not moved for too long: its process is to end."""
    verdict = _judge(_member(0, 11, "backward", since=NOW - 101), _member(1, since=NOW - 102))

    assert verdict == Verdict(
        f"{_name(1)} has not moved for 102 s, and {_name(0)} waits for it in backward",
        rank=1,
        lasted=102,
        victim=101,
        machine="machine",
    )


def test_the_last_of_the_late_is_to_blame() -> None:
    """The others may wait for it."""
    verdict = _judge(_member(0, 12), _member(1, 11, since=0), _member(2, 10, since=0))

    assert verdict is not None
    assert verdict.rank == 2


def test_a_late_rank_may_be_late_for_a_while() -> None:
    """As long as the user said."""
    assert _judge(_member(0, 11, "backward", since=NOW - 99), _member(1, since=NOW - 99)) is None


def test_a_rank_with_other_things_to_do_is_not_ended() -> None:
    """It is out of its training; the others cannot wait for it, but it may do what it does."""
    verdict = _judge(_member(0, 11, "barrier", since=0), _member(1, since=0, active=False))

    assert verdict is not None
    assert (verdict.rank, verdict.victim) == (1, None)


def test_ranks_that_wait_for_each_other_are_stuck() -> None:
    """None is behind, all wait, and nothing moves: the error says where each one is."""
    verdict = _judge(_member(0, where="barrier", since=NOW - 105), _member(1, where="broadcast", since=NOW - 101))

    assert verdict is not None
    places = f"{_name(0)} in barrier, {_name(1)} in broadcast"
    assert (verdict.text, verdict.rank) == (f"no rank has moved for 101 s: {places}", None)


def test_ranks_of_which_one_works_are_not_stuck() -> None:
    """It will come to where the others are."""
    assert _judge(_member(0, where="barrier", since=0), _member(1, since=0)) is None


@pytest.mark.parametrize(
    ("first", "heard", "text"),
    [
        (_member(0), NOW, None),
        (_member(0, lost="has died"), NOW, "has died"),
        (_member(0), NOW - 101, "does not answer: nothing was heard of it for 101 s"),
        (_member(0, 9, lost="has died", left=True), NOW, f"has left the training; {_name(1)} waits for it in backward"),
        # What is lost cannot answer either, and need not: its training was over.
        (_member(0, lost="has died", left=True), NOW - 101, None),
    ],
    ids=["runs", "died", "silent", "left", "gone"],
)
def test_rank_0_is_judged_by_the_others(first: Member, heard: float, text: str | None) -> None:
    """Whoever watches all others is watched by each of them."""
    own = _member(1, 10, "backward", since=NOW - 2)
    verdict = judge_first(first, own, heard, NOW, LIMITS)

    assert (None if verdict is None else verdict.text) == (None if text is None else f"{_name(0)} {text}")


def test_a_silent_rank_0_is_to_end() -> None:
    """Like any other rank that hangs."""
    verdict = judge_first(_member(0), _member(1), NOW - 101, NOW, LIMITS)

    assert verdict is not None
    assert (verdict.rank, verdict.victim, verdict.lasted) == (0, 100, 101)


@pytest.mark.parametrize(
    ("timeout", "limits"),
    [
        (1800, Limits(patience=1790, grace=5, unreachable=60, interval=1)),
        (20, Limits(patience=10, grace=5, unreachable=10, interval=1)),
        (8, Limits(patience=4, grace=2, unreachable=4, interval=0.4)),
    ],
)
def test_limits_are_within_the_timeout(timeout: float, limits: Limits) -> None:
    """To give a rank up, to end what holds another one, and to end that takes no longer than the user said."""
    assert Limits.within(timeout) == limits
    assert limits.patience + 2 * limits.grace <= timeout


def test_progress_moves_the_clock() -> None:
    """A rank that has come further has moved now."""
    member = _member(1, since=0)
    member.advance(Progress(at=11), NOW)

    assert member.since == NOW


def test_other_news_do_not_move_the_clock() -> None:
    """A rank that tells something else stands where it stood."""
    member = _member(1, since=0)
    member.advance(replace(member.progress, active=False), NOW)

    assert member.since == 0
    assert not member.progress.active


def _in(batch: int) -> Progress:
    """Make a rank that takes a batch, or has taken it."""
    return Progress(active=True, batch=batch)


def _before(batch: int) -> Progress:
    """Make a rank that has halted before a batch."""
    return Progress(active=True, batch=batch, halted=batch)


NO_ORDER = Order(0, end=False)


def test_nobody_halts_without_need() -> None:
    """Where no rank has halted, there is nothing to say."""
    assert order([_in(3), _in(4)], NO_ORDER) is None


def test_a_rank_that_has_taken_no_batch_has_not_halted() -> None:
    """Before the first one there is nothing to wait for."""
    assert order([Progress(active=True), Progress(active=True)], NO_ORDER) is None


def test_all_end_before_the_same_batch() -> None:
    """Once all have halted there."""
    assert order([_before(4)] * 3, NO_ORDER) == Order(4, end=True)


def test_a_rank_waits_for_those_behind() -> None:
    """They have not come to this batch yet, and will halt there."""
    assert order([_before(4), _in(3)], NO_ORDER) is None


def test_a_rank_about_to_halt_is_behind_still() -> None:
    """It says before which batch it halts before it says that it has come there, and may be looked at in between."""
    assert order([_before(4), Progress(active=True, batch=3, halted=4)], NO_ORDER) is None


@pytest.mark.parametrize("other", [_in(4), _in(5), _before(5)])
def test_a_rank_goes_on_if_another_has_taken_the_batch(other: Progress) -> None:
    """The other one needs it for the batch, whether it is in it or has halted before the next."""
    assert order([_before(4), other], NO_ORDER) == Order(4, end=False)


def test_the_first_to_have_halted_goes_on_first() -> None:
    """Of two that have halted at different batches, the one behind."""
    assert order([_before(4), _before(5), _before(5)], NO_ORDER) == Order(4, end=False)


def test_a_rank_that_has_ended_has_not_taken_the_batch() -> None:
    """The others hear once more that they end there."""
    end = Order(4, end=True)

    assert order([_in(4), _before(4)], end) == end


def test_a_batch_that_a_rank_takes_is_taken_by_all() -> None:
    """Though all are seen to wait before it, when the one that was told to take it has not moved yet."""
    go = Order(4, end=False)

    assert order([_before(4), _before(4)], go) == go


def test_an_order_for_a_later_batch_is_for_those_behind_too() -> None:
    """What they wait for lies before it, and was taken."""
    end = Order(5, end=True)

    assert order([_before(5), _before(4)], end) == end


def test_ranks_halt_before_the_next_batch_again() -> None:
    """When all have taken the one that they were told to take."""
    assert order([_before(5), _before(5)], Order(4, end=False)) == Order(5, end=True)
