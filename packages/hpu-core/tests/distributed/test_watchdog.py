"""Watchdog of a rank whose guard is replaced; what would end the process as well."""

import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from hpu_core import bridge
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import SCOPES, Heartbeat, RankFailure, SignalDecision
from hpu_core.distributed.guard import QUIET, WITH_STACKS
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.step_clock import StepClock
from hpu_core.distributed.store import RendezvousConfig
from hpu_core.distributed.watchdog import Watchdog

from .jobs import launched_process

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore
else:
    from torch.distributed import HashStore

KILLED = RankFailure("rank 1 (pid 101 on node) exited: killed by signal 9", 1)
OWN = RankFailure("rank 0 (pid 100 on node) has made no progress", 0)


@pytest.fixture
def store() -> HashStore:
    """The store of the job, to which both ranks have written a heartbeat."""
    store = HashStore()
    for rank in range(2):
        store.set(f"hpu_core/1/heartbeat/{rank}", Heartbeat(run=rank).to_json())
    return store


@pytest.fixture
def watchdog(store: HashStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    """The watchdog of rank 0, which reads at once what it sends."""
    monkeypatch.delattr("sys.last_value", raising=False)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", mock.Mock())
    config = RendezvousConfig("127.0.0.1", 1, 0, 2, timedelta(seconds=2))
    job: Any = RendezvousResult(config, store, 1, {})  # type: ignore[arg-type] # A store without a server.
    launched = LaunchedRanks({1: launched_process()})
    watchdog = Watchdog(job, launched, StepClock(), guard=lambda *_, **__: 0)
    with mock.patch.object(watchdog.clock, "notify_guard", side_effect=lambda: _read(watchdog)):
        watchdog.open()
        yield watchdog
        watchdog._users = 1
        watchdog.close()
        watchdog.shutdown()


def _read(watchdog: Watchdog) -> None:
    """Read what is sent, as a guard does."""
    watchdog.clock["read"] = watchdog.clock.from_rank.version


def _send(watchdog: Watchdog, **fields: Any) -> None:
    watchdog.clock.from_guard.write(Heartbeat(run=watchdog.clock.from_rank.read().run, **fields))


def _from_rank(watchdog: Watchdog) -> Heartbeat:
    return watchdog.clock.from_rank.read()


def test_a_training_has_a_number_of_its_own(watchdog: Watchdog) -> None:
    """A rank that did not get as far as rank 0 catches up."""
    first = _from_rank(watchdog).run
    watchdog.close()
    watchdog.open()

    assert (first, _from_rank(watchdog).run) == (1, 2)


def test_a_training_is_numbered_after_that_of_another_strategy(watchdog: Watchdog) -> None:
    """Of an earlier Fabric, which a rank may still have while the other one's is collected."""
    watchdog.open()

    assert _from_rank(watchdog).run == 2


def test_strategies_of_a_process_train_until_the_last_one_ends(watchdog: Watchdog) -> None:
    watchdog.open()
    watchdog.close()
    assert _from_rank(watchdog).training
    watchdog.close()

    assert not _from_rank(watchdog).training
    assert not [thread for thread in threading.enumerate() if thread.name == "hpu-watchdog"]


def test_rank_0_leaves_as_soon_as_the_others_have_left(watchdog: Watchdog) -> None:
    """Its guard reads again and again for it, not with the next heartbeat."""
    others = iter([2, 2, 1, 0])

    def read() -> None:
        _read(watchdog)
        watchdog.clock["others"] = next(others)

    with mock.patch.object(watchdog.clock, "notify_guard", side_effect=read):
        watchdog.close()

    assert next(others, None) is None


@pytest.mark.parametrize("enter", [lambda each: each.step("backward"), lambda each: each.wait("barrier")])
def test_a_failure_is_raised_at_the_next_step_or_wait(enter: Callable[[Watchdog], Any], watchdog: Watchdog) -> None:
    with enter(watchdog):
        _send(watchdog, failure=KILLED)
    with pytest.raises(RankFailedError, match="killed by signal 9") as raised, enter(watchdog):
        pass

    assert not raised.value.is_reported


def test_the_failure_of_an_earlier_training_is_forgotten(watchdog: Watchdog) -> None:
    _send(watchdog, failure=KILLED)
    watchdog.close()
    watchdog.open()

    watchdog.raise_if_failed()


def test_a_broken_collective_is_the_failure_of_a_peer(watchdog: Watchdog) -> None:
    """A collective may fail at once when a connection breaks, and the guard learns a moment later whose it was."""
    threading.Timer(0.05, lambda: _send(watchdog, failure=KILLED)).start()
    with pytest.raises(RankFailedError, match="killed by signal 9") as raised, watchdog.step("backward"):
        raise RuntimeError("connection closed by peer")

    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_rank_is_in_the_step_that_failed_until_the_cause_is_known(watchdog: Watchdog) -> None:
    """Else it would not wait for a rank that has left."""
    scopes: list[int] = []
    looks = mock.patch.object(
        watchdog, "_wait_until", side_effect=lambda *_: scopes.append(watchdog.clock.progress.scope)
    )
    with looks, pytest.raises(RuntimeError, match="closed by peer"), watchdog.step("backward"):
        raise RuntimeError("connection closed by peer")

    assert scopes == [SCOPES.index("backward")]


def test_the_first_error_of_a_rank_is_published_and_printed(
    watchdog: Watchdog, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that of a callback, which cannot save because the rank has failed."""
    for error in (ValueError("invalid batch"), KeyError("saved")):
        watchdog.report_failure(error)

    assert _from_rank(watchdog).error == "ValueError: invalid batch"
    assert capsys.readouterr().err == "[rank 0] failed: ValueError: invalid batch\n"


def test_the_other_ranks_have_time_to_read_of_a_failure_once(watchdog: Watchdog) -> None:
    with mock.patch("time.sleep") as sleep:
        watchdog.report_failure(ValueError("invalid batch"))
        watchdog.close()

    assert sleep.mock_calls == [mock.call(2 * watchdog._timeouts.heartbeat_interval)]


def test_an_error_that_follows_from_a_peer_is_not_published(watchdog: Watchdog) -> None:
    _send(watchdog, failure=KILLED)
    with pytest.raises(RankFailedError):
        watchdog.report_failure(RuntimeError("connection closed by peer"))

    assert _from_rank(watchdog).error is None


def test_an_error_that_all_ranks_handle_is_confirmed_once(watchdog: Watchdog) -> None:
    error = KeyboardInterrupt()
    threading.Timer(0.05, lambda: _send(watchdog, common_wait=1)).start()
    assert watchdog.confirm(error, "barrier")
    _send(watchdog)

    assert watchdog.confirm(error, "barrier")
    assert _from_rank(watchdog).pending_error is None


def test_an_error_that_a_rank_handles_alone_is_its_failure(watchdog: Watchdog) -> None:
    threading.Timer(0.05, lambda: _send(watchdog, failure=OWN)).start()

    assert not watchdog.confirm(ValueError("invalid batch"), "barrier")


def test_a_rank_that_is_interrupted_before_the_others_confirm_waits_for_them_no_more(watchdog: Watchdog) -> None:
    interrupted = mock.patch.object(watchdog, "_wait_until", side_effect=KeyboardInterrupt)
    with interrupted, pytest.raises(KeyboardInterrupt):
        watchdog.confirm(ValueError("invalid batch"), "barrier")

    assert _from_rank(watchdog).pending_error is None


def test_batches_are_counted(watchdog: Watchdog) -> None:
    for batches in (None, None, 3, 3, None, 3):
        assert watchdog.signals_before_batch(batches) == ()

    assert watchdog.clock.progress.taken == (3, 1)


def test_a_signal_is_handled_before_the_batch_that_all_agree_on(watchdog: Watchdog) -> None:
    watchdog.notify_signal(signal.SIGUSR1)
    watchdog.notify_signal(signal.SIGTERM)
    assert {*watchdog.clock.signals} == {signal.SIGUSR1, signal.SIGTERM}
    _send(watchdog, has_signals=True, decision=SignalDecision((2, 0), (signal.SIGUSR1, signal.SIGTERM)))

    assert watchdog.signals_before_batch() == ()
    assert watchdog.signals_before_batch() == (signal.SIGUSR1, signal.SIGTERM)
    # SIGTERM stands: a loop may ask again.
    assert {*watchdog.clock.signals} == {signal.SIGTERM}
    assert _from_rank(watchdog).waiting is None


def test_a_rank_waits_for_the_decision(watchdog: Watchdog) -> None:
    _send(watchdog, has_signals=True)
    seen: list[Heartbeat] = []

    def decide() -> None:
        seen.append(_from_rank(watchdog))
        _send(watchdog, has_signals=True, decision=SignalDecision((1, 0)))

    threading.Timer(0.05, decide).start()

    assert watchdog.signals_before_batch() == ()
    assert seen[0].waiting == (1, 0)


def test_an_epoch_ends_when_all_ranks_have_ended_it(watchdog: Watchdog, store: HashStore) -> None:
    def end() -> None:
        seen.append((_from_rank(watchdog).epoch_batches, store.add("hpu_core/1/epochs/1", 1)))

    seen: list[tuple[int, int]] = []
    for epoch in (1, 2):
        threading.Timer(0.05, end).start()
        watchdog.end_epoch(4)
        assert (_from_rank(watchdog).epochs, _from_rank(watchdog).epoch_batches) == (epoch, 0)

    # The store counts both ranks.
    assert seen == [(4, 2), (4, 4)]


def test_an_epoch_does_not_end_where_a_rank_had_fewer_batches(watchdog: Watchdog) -> None:
    threading.Timer(0.05, lambda: _send(watchdog, failure=OWN)).start()
    with pytest.raises(RankFailedError, match="rank 0"):
        watchdog.end_epoch(4)


def test_without_a_guard_a_rank_delays_no_other_one(watchdog: Watchdog, store: HashStore) -> None:
    watchdog._is_off = True
    watchdog.end_epoch(4)

    assert store.add("hpu_core/1/epochs/1", 0) == 1


def test_without_a_guard_a_rank_handles_its_own_signals(watchdog: Watchdog) -> None:
    watchdog.notify_signal(signal.SIGTERM)
    watchdog._is_off = True

    assert watchdog.signals_before_batch() == (signal.SIGTERM,)


def test_what_blocks_a_host_is_sent(watchdog: Watchdog) -> None:
    def hang(entered: threading.Event, end: threading.Event) -> None:
        with watchdog.step("backward"):
            entered.set()
            end.wait()

    entered, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=hang, args=(entered, end))
    thread.start()
    entered.wait()
    watchdog._launched[1].poll.return_value = -9  # type: ignore[attr-defined] # A mock.
    activity, place = watchdog.clock["activity"], watchdog.clock["instruction"]
    watchdog._look(is_idle=True)
    heartbeat, last = _from_rank(watchdog), watchdog.clock["activity"]
    end.set()
    thread.join()

    assert re.fullmatch(r"test_watchdog\.py:\d+ in hang", str(heartbeat.line))
    assert heartbeat.exits == {"1": "killed by signal 9"}
    assert last > activity
    assert watchdog.clock["instruction"] != place


@pytest.mark.parametrize(("order", "prints"), [(QUIET, False), (WITH_STACKS, True)])
def test_a_rank_obeys_its_guard(order: int, prints: bool, watchdog: Watchdog) -> None:
    watchdog.clock["order"] = order
    with mock.patch.object(os, "_exit") as leave, mock.patch.object(faulthandler, "dump_traceback") as dump:
        watchdog._look(is_idle=False)

    leave.assert_called_with(1)
    assert dump.called is prints


def test_an_error_of_the_watchdog_switches_it_off(watchdog: Watchdog, caplog: pytest.LogCaptureFixture) -> None:
    with mock.patch.object(watchdog, "_look", side_effect=ZeroDivisionError("no")):
        watchdog._pulse(mock.Mock(wait=mock.Mock(return_value=False)))

    assert "failure detection is off on rank 0" in caplog.text
    with watchdog.step("backward"):
        pass


class _Event:
    """Event that the device reaches when it is asked a second time."""

    def __init__(self) -> None:
        self._asked = 0

    def record(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return whether the device has reached it."""
        self._asked += 1
        return self._asked > 1


def test_the_device_is_waited_for_without_a_blocking_call(watchdog: Watchdog) -> None:
    watchdog.clock._make_event = _Event
    with mock.patch.object(bridge, "synchronize") as synchronize:
        watchdog.wait_for_device()

    assert not watchdog.clock.progress.is_pending
    synchronize.assert_not_called()


def test_a_device_without_events_is_synchronized(watchdog: Watchdog) -> None:
    watchdog.clock._make_event = mock.Mock(side_effect=RuntimeError("no event"))
    with mock.patch.object(bridge, "synchronize") as synchronize:
        watchdog.wait_for_device()

    synchronize.assert_called_once_with()


def test_the_wait_for_the_device_ends_with_a_failure(watchdog: Watchdog) -> None:
    watchdog.clock._make_event = lambda: mock.Mock(query=mock.Mock(return_value=False))
    _send(watchdog, failure=KILLED)

    with pytest.raises(RankFailedError):
        watchdog.wait_for_device()


def test_a_program_of_fabric_leaves_at_its_end(watchdog: Watchdog) -> None:
    watchdog._at_exit()

    assert (_from_rank(watchdog).training, _from_rank(watchdog).error) == (False, None)


def test_an_error_that_ends_a_program_of_fabric_is_published(
    watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError("invalid batch"), raising=False)
    watchdog._at_exit()

    assert (_from_rank(watchdog).training, _from_rank(watchdog).error) == (False, "ValueError: invalid batch")


def test_an_exit_after_a_failure_is_limited(watchdog: Watchdog) -> None:
    """At exit the bridge destroys its process groups, which waits for dead peers."""
    _send(watchdog, failure=KILLED)
    watchdog._at_exit()

    faulthandler.dump_traceback_later.assert_called_once_with(mock.ANY, exit=True, file=mock.ANY)  # type: ignore[attr-defined] # A mock.


def test_of_many_ranks_a_few_print_the_failure(watchdog: Watchdog) -> None:
    watchdog.job = replace(watchdog.job, config=replace(watchdog.job.config, world_size=4096, rank=1))
    _send(watchdog, failure=KILLED)

    with pytest.raises(RankFailedError) as raised:
        watchdog.raise_if_failed()
    assert raised.value.is_reported


def test_a_fork_does_not_end_the_guard_of_its_parent(watchdog: Watchdog) -> None:
    """A notebook trains, and then launches ranks by fork, which have a process group of their own."""
    watchdog._guard = 4711
    with mock.patch("os.getpid", return_value=watchdog._pid + 1), mock.patch("os.kill") as kill:
        watchdog.shutdown()
    watchdog._guard = 0

    kill.assert_not_called()
