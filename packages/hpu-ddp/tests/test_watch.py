"""Two ranks that watch each other, both in this process: nothing ends it, because what would is replaced."""

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from hpu_ddp import _watch
from hpu_ddp._watch import Identity, Watch
from hpu_ddp._watch._rules import Limits, Order, Verdict
from hpu_ddp.errors import RankFailedError

_TIMEOUT = 60.0
# For how long a test waits for another thread.
_PATIENCE = 30.0


class Pair:
    """The watches of two ranks, and what they would have done to their processes.

    Args:
        patience: For how long a rank may be late, in seconds.
        timers: As below.
        given_up: As below.

    Attributes:
        first: Rank 0's.
        second: Rank 1's.
        timers: Replaces the module that ends a process after a time.
        given_up: Called where a process would have ended itself at once.
    """

    def __init__(self, patience: float, timers: mock.Mock, given_up: mock.Mock) -> None:
        self.timers, self.given_up = timers, given_up
        # Other machines, so that neither ends the other.
        own, other = (Identity(rank, "node", os.getpid(), f"machine {rank}") for rank in range(2))
        self.first, self.second = Watch(own, _TIMEOUT), Watch(other, _TIMEOUT)
        # Quick where tests wait for it, and patient with a machine that has other things to do.
        for watch in (self.first, self.second):
            watch._limits = Limits(patience=patience, grace=7, unreachable=60, interval=0.1)
        listener, token = socket.create_server(("127.0.0.1", 0)), secrets.token_hex(4)
        port = listener.getsockname()[1]
        self.first.stand_guard([other], listener, token)
        self.second.report_to(own, "127.0.0.1", port, token)
        self.first.begin()
        self.second.begin()

    def decided(self, watch: Watch) -> bool:
        """Wait until a rank has heard that the training is over."""
        return watch._decided.wait(_PATIENCE)


@pytest.fixture
def patience() -> float:
    """For how long a rank may be late, unless a test says otherwise: longer than any test waits."""
    return 2 * _PATIENCE


@pytest.fixture
def pair(patience: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two ranks in a training."""
    timers, given_up = mock.Mock(), mock.Mock()
    monkeypatch.setattr(_watch, "faulthandler", timers)
    monkeypatch.setattr(_watch, "_give_up", given_up)
    monkeypatch.setattr(_watch, "_put_down", mock.Mock())
    monkeypatch.delattr("sys.last_value", raising=False)
    pair = Pair(patience, timers, given_up)
    yield pair
    pair.second._take_leave()
    pair.first._take_leave()


def _hold(watch: Watch, where: str) -> tuple[threading.Thread, list[BaseException]]:
    """Have a rank wait at a meeting point until it has heard that the training is over; keep what it then raises."""
    errors: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(RuntimeError) as caught, watch.meeting(where):  # noqa: PT012 - what fails is a wait.
            watch._decided.wait(_PATIENCE)
            raise RuntimeError("connection closed by peer")
        errors.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, errors


@pytest.fixture
def alone() -> Watch:
    """A rank that has not met any other."""
    return Watch(Identity(0, "node", os.getpid(), "machine"), _TIMEOUT)


def test_meetings_are_counted(alone: Watch) -> None:
    """And each is where the rank is, until it is over."""
    with alone.meeting("set-up"):
        with alone.meeting("broadcast"):
            inner = alone._progress.where
        outer = alone._progress.where

    assert (inner, outer, alone._progress.where, alone._progress.at) == ("broadcast", "set-up", None, 2)


def test_a_meeting_that_failed_does_not_count(alone: Watch) -> None:
    """The rank has not come through it, and other ranks may wait for it there."""
    with pytest.raises(KeyError), alone.meeting("backward"):
        raise KeyError

    assert (alone._progress.at, alone._progress.where) == (0, None)


def test_without_others_an_error_is_an_error(alone: Watch) -> None:
    """Nobody is asked about it."""
    with pytest.raises(RuntimeError, match="own"), alone.meeting("backward"):
        raise RuntimeError("own")


def test_without_others_no_batch_waits(alone: Watch) -> None:
    """Not even if it was asked to end."""
    alone.stop()

    assert not alone.pause()


def test_a_failure_reaches_a_rank_that_waits(pair: Pair) -> None:
    """As an error with the name of the rank that failed, and what went wrong there."""
    thread, errors = _hold(pair.first, "backward")
    pair.second.fail(ValueError("no such luck"))
    thread.join(_PATIENCE)

    (error,) = errors
    assert isinstance(error, RankFailedError)
    assert str(error).startswith(f"rank 1 (process {os.getpid()} on node) failed: ValueError: no such luck; rank 0 (")
    assert isinstance(error.__cause__, RuntimeError)


def test_a_failure_of_rank_0_reaches_the_others(pair: Pair) -> None:
    """Which it tells them itself."""
    thread, errors = _hold(pair.second, "barrier")
    pair.first.fail(KeyError("gone"))
    thread.join(_PATIENCE)

    assert "rank 0 (" in str(errors[0])
    assert "failed: KeyError: 'gone'; rank 1 (" in str(errors[0])


def test_a_rank_that_is_held_is_ended(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """It says why, and the system ends it after a moment, unless it gets out of what holds it."""
    thread, _ = _hold(pair.first, "backward")
    pair.second.fail(ValueError("no such luck"))
    thread.join(_PATIENCE)

    (first, then) = pair.timers.dump_traceback_later.call_args_list
    assert first == mock.call(7, exit=True, file=2)
    assert 7 < then.args[0] < _TIMEOUT
    assert "hpu-ddp: rank 0 ends, because rank 1 (" in capsys.readouterr().err


def test_a_program_that_goes_on_is_not_ended(pair: Pair) -> None:
    """When the Trainer has returned, what the program does next is its own affair."""
    thread, _ = _hold(pair.first, "backward")
    pair.second.fail(ValueError("no such luck"))
    thread.join(_PATIENCE)
    pair.first.end()

    pair.timers.cancel_dump_traceback_later.assert_called_once_with()


def test_ranks_that_were_parted_do_not_train_again(pair: Pair) -> None:
    """Their process group is of no use any more."""
    thread, _ = _hold(pair.first, "backward")
    pair.second.fail(ValueError("no such luck"))
    thread.join(_PATIENCE)
    pair.first.end()

    with pytest.raises(RankFailedError, match="failed: ValueError"):
        pair.first.begin()


def test_ranks_that_fail_together_may_train_again(pair: Pair) -> None:
    """An error that all of them have is the program's to handle."""
    for watch in (pair.first, pair.second):
        watch.fail(ValueError("no such luck"))
        watch.end()
    for watch in (pair.first, pair.second):
        watch.begin()
    with pair.first.meeting("backward"), pair.second.meeting("backward"):
        pass

    assert not pair.first._decided.is_set()
    assert pair.first._progress.failed is None


def test_what_follows_from_a_failure_is_none(pair: Pair) -> None:
    """A rank that ends because of another one does not say that it failed."""
    pair.first.fail(RankFailedError("rank 1 has died"))
    thread, _ = _hold(pair.first, "backward")
    pair.second.fail(ValueError("no such luck"))
    thread.join(_PATIENCE)
    pair.first.fail(RuntimeError("connection closed by peer"))

    assert pair.first._progress.failed is None


def test_an_error_of_its_own_stays_one(pair: Pair) -> None:
    """Where no other rank is to blame, the error is what it was."""
    with pytest.raises(RuntimeError, match="own"), pair.first.meeting("backward"):
        raise RuntimeError("own")


def test_a_rank_that_dies_is_missed(pair: Pair) -> None:
    """Its connection ends, and the other rank knows at once."""
    line: Any = vars(pair.second._post)["_line"]
    line._socket.shutdown(socket.SHUT_RDWR)

    assert pair.decided(pair.first)
    with pytest.raises(RankFailedError, match=r"rank 1 \(process \d+ on node\) has died"):
        pair.first.check()


@pytest.mark.parametrize("patience", [2])
def test_a_rank_that_does_not_move_is_given_up(pair: Pair) -> None:
    """While another one waits for it: it hears of it, and ends at once."""
    thread, errors = _hold(pair.first, "backward")
    thread.join(_PATIENCE)

    assert "has not moved for" in str(errors[0])
    assert pair.decided(pair.second)
    pair.given_up.assert_called_once()


def test_a_rank_that_has_finished_is_not_missed(pair: Pair) -> None:
    """It takes its leave, and the other one goes on with what it does."""
    pair.second.end()
    pair.second._take_leave()
    with pair.first.meeting("barrier"):
        pass

    assert not pair.first._decided.wait(5 * pair.first._limits.interval)


def test_strangers_change_nothing(pair: Pair) -> None:
    """Somebody who connects without the token is sent away, and the ranks go on."""
    port = vars(pair.first._post)["_listener"].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b'{"token": "guessed", "rank": 1}\n')
        stranger.settimeout(_PATIENCE)

        assert stranger.recv(100) == b""
    assert not pair.first._decided.is_set()


def test_all_ranks_end_before_the_same_batch(pair: Pair) -> None:
    """Once one was asked to, whichever it was; the one that is behind takes the batches that the other has taken."""
    taken = [0, 0]

    def train(rank: int, watch: Watch, together: threading.Barrier) -> None:
        while not watch.pause():
            # A batch, for which the ranks need each other.
            together.wait(_PATIENCE)
            taken[rank] += 1
            if rank == 1 and taken[1] == 3:
                watch.stop()

    together = threading.Barrier(2)
    threads = [
        threading.Thread(target=train, args=(rank, watch, together))
        for rank, watch in enumerate((pair.first, pair.second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)

    assert not any(thread.is_alive() for thread in threads)
    assert taken[0] == taken[1] >= 3


def test_an_agreed_end_is_no_failure(pair: Pair) -> None:
    """The exception with which the Trainer ends then tells the others nothing."""
    pair.first.hear_order(Order(1, end=True))
    pair.first.fail(SystemExit())

    assert pair.first._progress.failed is None


def test_a_victim_on_this_machine_is_put_down() -> None:
    """A process that does not end by itself is killed, if it is one of this machine's."""
    with mock.patch("select.select", return_value=([], [], [])), mock.patch("signal.pidfd_send_signal") as kill:
        own = Identity(0, "node", os.getpid(), "machine")
        _watch._put_down(Verdict("", 1, 0, os.getppid(), "machine"), own)
        _watch._put_down(Verdict("", 1, 0, os.getppid(), "another"), own)
        _watch._put_down(Verdict("", 1, 0, None, "machine"), own)

    assert kill.call_count == 1


def test_a_victim_that_has_ended_is_left_alone() -> None:
    """Nobody else gets its number meanwhile."""
    with mock.patch("os.pidfd_open", side_effect=ProcessLookupError), mock.patch("signal.pidfd_send_signal") as kill:
        _watch._put_down(Verdict("", 1, 0, os.getppid(), "machine"), Identity(0, "node", os.getpid(), "machine"))

    kill.assert_not_called()


def test_rank_0_out_of_reach_is_said() -> None:
    """With what has to be open between the machines."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    watch = Watch(Identity(1, "node", 2, "machine"), _TIMEOUT)

    with pytest.raises(
        RankFailedError, match=rf"rank 1 cannot reach rank 0 \(.*\) at 127\.0\.0\.1, port {port}: .* open"
    ):
        watch.report_to(Identity(0, "first", 1, "other"), "127.0.0.1", port, "token")


def test_a_rank_0_that_sends_one_away_is_said() -> None:
    """As one that knows another token."""
    own, other = (Identity(rank, "node", os.getpid(), f"machine {rank}") for rank in range(2))
    first, second = Watch(own, _TIMEOUT), Watch(other, _TIMEOUT)
    listener = socket.create_server(("127.0.0.1", 0))
    first.stand_guard([other], listener, "right")

    with pytest.raises(RankFailedError, match="rank 0 has died"):
        second.report_to(own, "127.0.0.1", listener.getsockname()[1], "wrong")
    first._take_leave()
