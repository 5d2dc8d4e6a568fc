"""Guard of a rank whose threads stand still; its process is replaced, except in the tests of hpu-ddp."""

import os
import signal
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from hpu_core.distributed.failure_detection import Heartbeat, Progress, RankFailure, RankInfo, RankState, Timeouts
from hpu_core.distributed.guard import _Guard
from hpu_core.distributed.heartbeat_exchange import HeartbeatExchange
from hpu_core.distributed.step_clock import StepClock

TIMEOUTS = Timeouts(stall=100, exit_grace=5, heartbeat_interval=1)
FAILURE = RankFailure("rank 1 exited", 1)


@pytest.fixture
def exchange() -> Any:
    """An exchange of a healthy job."""
    exchange = mock.create_autospec(HeartbeatExchange, instance=True)
    exchange.timeouts, exchange.own = TIMEOUTS, RankState(RankInfo(0, "node", 1), Heartbeat(), 0, 0)
    exchange.exchange.return_value = exchange.reconnect.return_value = None
    return exchange


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Record of kills."""
    kill = mock.Mock()
    monkeypatch.setattr(os, "kill", kill)
    return kill


def _run(exchange: Any, seconds: int, *, beats: int = 1, training: bool = True) -> None:
    """Run the guard of a process for some seconds, which publishes heartbeats in the first of them."""
    clock = StepClock()
    clock.record()
    guard, now = _Guard(exchange, clock, 4711), map(float, range(seconds + 1))
    ended: Any = iter([*[([], [], [])] * seconds, ([1], [], [])])

    def wait(*_: Any) -> Any:
        if guard._clock.beats < beats:
            clock.publish(Heartbeat(run=2, beat=7, training=training, progress=Progress(moves=3)))
        return next(ended)

    with (
        mock.patch("os.pidfd_open", return_value=0),
        mock.patch("select.select", wait),
        mock.patch("time.monotonic", side_effect=now),
        mock.patch("os.write"),
    ):
        guard.run()


def test_a_rank_that_runs_has_no_stand_in(exchange: Any) -> None:
    _run(exchange, 60, beats=61)

    exchange.exchange.assert_not_called()


def test_heartbeats_of_a_frozen_rank_go_on(exchange: Any, kill: mock.Mock) -> None:
    """It may load its data: silence alone is no failure."""
    _run(exchange, 60)
    sent = [call.args[0] for call in exchange.exchange.call_args_list]

    assert [beat.beat for beat in sent[:3]] == [8, 9, 10]
    assert {(beat.run, beat.is_frozen, beat.progress) for beat in sent} == {(2, True, Progress())}
    exchange.resume.assert_called_once_with(mock.ANY)
    kill.assert_not_called()


def test_a_rank_that_does_not_train_may_be_frozen(exchange: Any) -> None:
    _run(exchange, 60, training=False)

    exchange.exchange.assert_not_called()


def test_a_frozen_rank_is_killed_some_seconds_after_a_failure(exchange: Any, kill: mock.Mock) -> None:
    exchange.exchange.side_effect = [None, *[FAILURE] * 60]
    _run(exchange, 9)
    kill.assert_not_called()

    exchange.exchange.side_effect = [None, *[FAILURE] * 60]
    _run(exchange, 11)
    kill.assert_called_once_with(4711, signal.SIGKILL)


def test_a_frozen_rank_that_the_others_wait_for_is_killed_at_once(exchange: Any, kill: mock.Mock) -> None:
    exchange.exchange.side_effect = [None] * 60 + [RankFailure("rank 0 has made no progress", 0)] * 9
    _run(exchange, 64)

    kill.assert_called_with(4711, signal.SIGKILL)


def test_a_frozen_rank_that_finds_no_store_is_killed_after_the_stall_timeout(exchange: Any, kill: mock.Mock) -> None:
    """As rank 0, when it is stopped: the store is in its process."""
    exchange.exchange.side_effect = RuntimeError("timed out")
    _run(exchange, 90)
    kill.assert_not_called()

    _run(exchange, 108)
    kill.assert_called_with(4711, signal.SIGKILL)


def test_a_heartbeat_is_read_as_it_was_published() -> None:
    clock, beat = StepClock(), replace(Heartbeat(), error="ValueError: " + "x" * 2000, signals=[15])
    clock.publish(Heartbeat())
    clock.publish(beat)

    assert (clock.published, clock.beats) == (beat, 2)
