"""Watchdogs of two ranks in this process; what would end it is replaced."""

import atexit
import faulthandler
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpu_core.distributed import watchdog as module
from hpu_core.distributed.failure_detection import Heartbeat, RankFailedError, RankFailure, RankInfo, Timeouts
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.store import RendezvousConfig
from hpu_core.distributed.watchdog import Watchdog
from hpu_core.launcher_env import AGENT_STORE
from hpu_testing import free_port

from .jobs import broken_store, join, launched_process

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore, TCPStore
else:
    from torch.distributed import HashStore, TCPStore

# How long a test waits for another thread.
_LIMIT = 60.0


class Pair:
    """Two ranks of one job.

    Attributes:
        ranks: Their watchdogs.
        heartbeats: Their heartbeats.
        launched: The process of rank 1, which rank 0 launched.
    """

    def __init__(self, jobs: list[RendezvousResult]) -> None:
        self.heartbeats = [job.heartbeat for job in jobs]
        self.launched = launched_process()
        self.ranks = [Watchdog(jobs[0], LaunchedRanks({1: self.launched})), Watchdog(jobs[1], LaunchedRanks())]

    def start(self) -> None:
        """Start both watchdogs."""
        for watchdog in self.ranks:
            watchdog.start()
            watchdog.on_training_start()


@pytest.fixture
def timeout() -> float:
    """The strategy's timeout in seconds: longer than any test, unless a test parametrizes it."""
    return 4 * _LIMIT


@pytest.fixture(autouse=True)
def _frequent_heartbeats(timeout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send heartbeats as often as with a short timeout, where the timeout is a long one."""
    limits = Timeouts.from_timeout(timeout, 2)
    interval = min(0.25, limits.heartbeat_interval)
    monkeypatch.setattr(Timeouts, "from_timeout", lambda *_: replace(limits, heartbeat_interval=interval))


@pytest.fixture
def jobs(timeout: float, monkeypatch: pytest.MonkeyPatch) -> list[RendezvousResult]:
    """Rendezvous results of two ranks."""
    monkeypatch.delenv(AGENT_STORE, raising=False)
    return join(2, timeout)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Record of calls that would end this process."""
    calls = mock.Mock(spec=["cancel", "later", "now", "register"])
    monkeypatch.setattr(faulthandler, "dump_traceback_later", calls.later)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", calls.cancel)
    monkeypatch.setattr(os, "_exit", calls.now)
    monkeypatch.setattr(atexit, "register", calls.register)
    monkeypatch.delattr("sys.last_value", raising=False)
    return calls


@pytest.fixture
def pair(jobs: list[RendezvousResult], exits: mock.Mock) -> Iterator[Pair]:
    """Two ranks that train."""
    threads = set(threading.enumerate())
    pair = Pair(jobs)
    pair.start()
    yield pair
    for watchdog in reversed(pair.ranks):
        watchdog.close()
    # torch's client ends by its own timeout.
    for thread in threading.enumerate():
        if thread.name == "hpu-store-connect":
            thread.join(_LIMIT)
    assert set(threading.enumerate()) <= threads


def _disconnect(watchdog: Watchdog) -> None:
    """Have nothing listen where a rank looks for the store."""
    exchange = watchdog._exchange
    exchange._job = replace(exchange._job, config=replace(exchange._job.config, port=free_port()))
    exchange._connection = broken_store()


def _held(watchdog: Watchdog) -> Callable[[], BaseException]:
    """Hold a rank in a collective until it knows of a failure; return how to wait for what it then raises."""
    errors: list[BaseException] = []

    def hold() -> None:
        with pytest.raises(RuntimeError) as caught, watchdog.step("backward"):  # noqa: PT012 - what fails is a wait.
            watchdog._failed.wait(_LIMIT)
            raise RuntimeError("connection closed by peer")
        errors.append(caught.value)

    thread = threading.Thread(target=hold)
    thread.start()

    def error() -> BaseException:
        thread.join(_LIMIT)
        return errors[0]

    return error


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_rank_is_raised_by_the_other(rank: int, pair: Pair) -> None:
    wait = _held(pair.ranks[1 - rank])
    pair.ranks[rank].report_failure(ValueError("no such luck"))
    error = wait()

    assert isinstance(error, RankFailedError)
    assert f"rank {rank} (pid {os.getpid()} on " in str(error)
    assert f"failed: ValueError: no such luck; rank {1 - rank} (pid " in str(error)
    assert isinstance(error.__cause__, RuntimeError)


def test_an_error_that_follows_from_the_first_is_not_published(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as that of a callback, which cannot save because the rank has failed."""
    for error in (ValueError("invalid batch"), RuntimeError("a checkpoint needs all ranks")):
        pair.ranks[1].report_failure(error)

    assert pair.heartbeats[1].error == "ValueError: invalid batch"
    assert "needs all ranks" not in capsys.readouterr().err


def test_a_long_error_text_is_cut(pair: Pair) -> None:
    """The message of `load_state_dict` for a large model has hundreds of kilobytes."""
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("x" * 500_000))

    assert "failed: ValueError: xxx" in str(wait())
    assert len(str(wait())) < 3000


def test_a_process_that_died_is_named_with_its_signal(pair: Pair) -> None:
    wait = _held(pair.ranks[0])
    pair.launched.poll.return_value = -9

    assert str(wait()).endswith("exited: killed by signal 9")


@pytest.mark.usefixtures("exits")
def test_a_process_that_died_is_named_by_its_launcher_on_another_machine(
    timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 launched rank 2."""
    monkeypatch.delenv(AGENT_STORE, raising=False)
    launched = launched_process()
    jobs = join(3, timeout)
    children = [LaunchedRanks(), LaunchedRanks({2: launched}), LaunchedRanks()]
    watchdogs = [Watchdog(job, ranks) for job, ranks in zip(jobs, children, strict=True)]
    for watchdog in watchdogs:
        watchdog.start()
    wait = _held(watchdogs[0])
    launched.poll.return_value = -9

    assert str(wait()).endswith("exited: killed by signal 9")

    for watchdog in reversed(watchdogs):
        watchdog.close()


def test_a_rank_whose_output_nobody_reads_exits(pair: Pair, exits: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of Open MPI's ranks, when mpirun was killed."""
    stderr = mock.create_autospec(sys.stderr, instance=True)
    stderr.write.side_effect = BrokenPipeError
    monkeypatch.setattr(sys, "stderr", stderr)
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()

    deadline = time.monotonic() + _LIMIT
    while not exits.later.called and time.monotonic() < deadline:
        pair.ranks[0]._closed.wait(0.01)
    assert exits.later.call_args_list[0] == mock.call(5.0, exit=True, file=mock.ANY)


def test_a_rank_held_in_a_collective_exits_after_a_grace_period(
    pair: Pair, exits: mock.Mock, capfd: pytest.CaptureFixture[str]
) -> None:
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()

    deadline = time.monotonic() + _LIMIT
    while len(exits.later.call_args_list) < 2 and time.monotonic() < deadline:
        pair.ranks[0]._closed.wait(0.01)
    (first, extended) = exits.later.call_args_list[:2]
    assert first.args == (5.0,)
    # Out of the step, it may do what its user's code does about the error.
    assert extended.args[0] > 3 * _LIMIT
    # Its stacks would follow the traceback of the failed rank, and only show where it waits.
    assert {os.path.realpath(f"/proc/self/fd/{call.kwargs['file']}") for call in (first, extended)} == {os.devnull}
    assert "[rank 0] aborting: rank 1 (pid " in capfd.readouterr().err


def test_of_many_ranks_a_few_print_the_failure(
    jobs: list[RendezvousResult], exits: mock.Mock, capsys: pytest.CaptureFixture[str]
) -> None:
    job = replace(jobs[1], config=replace(jobs[1].config, world_size=4096))
    watchdog = Watchdog(job, LaunchedRanks())
    job.heartbeat.training = True
    with pytest.raises(RankFailedError) as raised, watchdog.step("backward"):  # noqa: PT012 - it fails meanwhile.
        watchdog._on_failure(RankFailure("no rank has made progress for 9 s"))
        watchdog.raise_if_failed()

    assert raised.value.is_reported
    assert capsys.readouterr().err == ""
    # Nor its stacks.
    assert exits.later.call_args_list[0] == mock.call(mock.ANY, exit=True, file=mock.ANY)
    assert exits.later.call_args_list[0].kwargs["file"] != 2


def test_a_failure_that_only_one_machine_knows_is_printed_by_each_of_its_ranks(
    jobs: list[RendezvousResult], capsys: pytest.CaptureFixture[str]
) -> None:
    job = replace(jobs[1], config=replace(jobs[1].config, world_size=4096))
    job.heartbeat.training = True
    with mock.patch.object(faulthandler, "dump_traceback_later"):
        Watchdog(job, LaunchedRanks())._on_failure(RankFailure("mpirun (pid 7 on node) exited"), is_local=True)

    assert capsys.readouterr().err == "[rank 1] aborting: mpirun (pid 7 on node) exited\n"


def test_stacks_are_printed_if_no_single_rank_is_at_fault(pair: Pair, exits: mock.Mock) -> None:
    with pytest.raises(RankFailedError), pair.ranks[0].step("backward"):  # noqa: PT012 - the failure is of the body.
        pair.ranks[0]._on_failure(RankFailure("no rank has made progress for 9 s"))
        pair.ranks[0].raise_if_failed()

    assert exits.later.call_args_list[0] == mock.call(5.0, exit=True, file=2)


def test_a_rank_that_is_in_no_collective_may_finish_its_work(pair: Pair, exits: mock.Mock) -> None:
    """As one that writes a file while a peer is killed: it raises at its next collective."""
    pair.ranks[0]._on_failure(RankFailure("rank 1 exited: killed by signal 9", 1))

    exits.later.assert_called_once_with(4 * _LIMIT, exit=True, file=mock.ANY)
    with pytest.raises(RankFailedError, match="killed by signal 9"), pair.ranks[0].step("backward"):
        pass


def test_the_threads_end_with_the_process_group(pair: Pair) -> None:
    with mock.patch("torch.distributed.is_initialized", return_value=True) as is_initialized:
        # Each rank has seen a process group when its monitor has asked twice.
        while is_initialized.call_count < 8:
            pair.ranks[0]._closed.wait(0.01)
        is_initialized.return_value = False
        for thread in (thread for watchdog in pair.ranks for thread in watchdog._threads):
            thread.join(_LIMIT)

    assert all(watchdog.is_closed for watchdog in pair.ranks)


@pytest.mark.parametrize("timeout", [8.0])
def test_the_threads_end_although_the_store_is_out_of_reach(pair: Pair) -> None:
    watchdog = pair.ranks[1]
    waits = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:

        def wait_for_answer(*_: Any) -> None:
            waits.set()
            client.recv(1)
            raise RuntimeError("Connection was likely closed")

        exchange = watchdog._exchange
        exchange._job = replace(exchange._job, config=replace(exchange._job.config, port=server.getsockname()[1]))
        exchange._connection = store = broken_store()
        store.set.side_effect = wait_for_answer
        assert waits.wait(_LIMIT)
        watchdog._on_failure(RankFailure("the store of rank 0 has not answered for 26 s", 0))

        watchdog.close()

        assert not any(thread.is_alive() for thread in watchdog._threads)


def test_user_code_after_the_training_is_not_ended(pair: Pair, exits: mock.Mock) -> None:
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()
    pair.ranks[0].close()

    exits.cancel.assert_called_once_with()


def _exit(exits: mock.Mock) -> None:
    """Call what was registered for the exit of this process."""
    exits.later.reset_mock()
    for call in exits.register.call_args_list:
        call.args[0](*call.args[1:])


def test_exit_after_a_failure_is_limited(pair: Pair, exits: mock.Mock) -> None:
    """At exit the bridge destroys its process groups, which waits for dead peers."""
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()
    for watchdog in pair.ranks:
        watchdog.close()
    _exit(exits)

    exits.later.assert_called_with(5.0, exit=True, file=mock.ANY)


def test_exit_after_a_failure_and_another_training_is_not_limited(
    jobs: list[RendezvousResult], pair: Pair, exits: mock.Mock
) -> None:
    """All ranks are alive, and a process that takes long to exit must not fail."""
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()
    for watchdog in pair.ranks:
        watchdog.close()
    for job in reversed(jobs):
        watchdog = Watchdog(job, LaunchedRanks())
        watchdog.start()
        watchdog.close()
    _exit(exits)

    exits.later.assert_not_called()


def test_ranks_do_not_train_again_after_a_failure(pair: Pair) -> None:
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()

    with pytest.raises(RankFailedError, match="failed: ValueError"):
        pair.ranks[0].on_training_start()


def test_new_strategy_does_not_read_the_failure_of_the_last_one(jobs: list[RendezvousResult], pair: Pair) -> None:
    """As when a test or a notebook catches an error that every rank raised, and goes on."""
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    wait()
    for watchdog in pair.ranks:
        watchdog.close()
    follower = Watchdog(jobs[1], LaunchedRanks())
    leader = Watchdog(jobs[0], LaunchedRanks({1: pair.launched}))

    for watchdog in (follower, leader):
        watchdog.start()
        for _ in range(2):
            watchdog._exchange_once()
    for watchdog in (follower, leader):
        watchdog.raise_if_failed()
        watchdog.close()

    assert [beat.run for beat in pair.heartbeats] == [2, 2]


def test_ranks_that_fail_together_may_train_again(pair: Pair) -> None:
    for watchdog in pair.ranks:
        watchdog.report_failure(ValueError("no such luck"))
    for watchdog in pair.ranks:
        watchdog.on_training_start()
    with pair.ranks[0].step("backward"), pair.ranks[1].step("backward"):
        pass

    assert [beat.error for beat in pair.heartbeats] == [None, None]


def test_a_failure_of_a_peer_is_not_published_as_an_own_one(pair: Pair) -> None:
    wait = _held(pair.ranks[0])
    pair.ranks[1].report_failure(ValueError("no such luck"))
    pair.ranks[0].report_failure(wait())
    with pytest.raises(RankFailedError, match=r"rank 1 .* failed: ValueError"):
        pair.ranks[0].report_failure(RuntimeError("connection closed by peer"))

    assert pair.heartbeats[0].error is None


def test_an_error_without_a_failed_peer_stays_as_it_is(pair: Pair) -> None:
    with pytest.raises(RuntimeError, match="own"), pair.ranks[0].step("backward"):
        raise RuntimeError("own")


def test_an_error_is_not_waited_for_again_when_it_is_reported(pair: Pair) -> None:
    """A program with an error of its own should not wait for a peer's twice."""
    waits: list[float] = []
    with mock.patch.object(pair.ranks[0]._failed, "wait", waits.append):
        with pytest.raises(RuntimeError, match="own") as caught, pair.ranks[0].step("setup"):
            raise RuntimeError("own")
        pair.ranks[0].report_failure(caught.value)

    assert [seconds > 0 for seconds in waits] == [True, False]
    assert pair.heartbeats[0].error == "RuntimeError: own"


def test_errors_of_two_collectives_are_both_waited_for(pair: Pair) -> None:
    waits: list[float] = []
    with mock.patch.object(pair.ranks[0]._failed, "wait", waits.append):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="own"), pair.ranks[0].step("backward"):
                raise RuntimeError("own")

    assert [seconds > 0 for seconds in waits] == [True, True]


def test_only_the_watchdog_that_reported_an_error_waits_for_its_readers(
    jobs: list[RendezvousResult], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strategies of one process share a heartbeat, and Fabric's close at exit, one after the other."""
    other = Watchdog(jobs[0], LaunchedRanks())
    other.start()
    pair.heartbeats[0].training = True
    pair.ranks[0].report_failure(ValueError("no such luck"))
    waits: list[float] = []
    sleep = time.sleep

    def sleep_less(seconds: float) -> None:
        waits.append(seconds)
        sleep(min(seconds, 0.01))

    monkeypatch.setattr(time, "sleep", sleep_less)
    other.close()

    assert max(waits, default=0) < Timeouts.from_timeout(0, 2).silence


@pytest.mark.parametrize("timeout", [8.0])
def test_a_rank_that_hangs_exits_with_its_stack(
    pair: Pair, exits: mock.Mock, capfd: pytest.CaptureFixture[str]
) -> None:
    wait = _held(pair.ranks[0])

    assert "rank 1 (pid " in str(wait())
    assert " has made no progress for " in str(wait())
    ended = threading.Event()
    exits.now.side_effect = lambda code: ended.set()
    assert exits.now.called or ended.wait(_LIMIT)
    assert "test_watchdog.py" in capfd.readouterr().err


@pytest.mark.parametrize("timeout", [8.0])
def test_a_rank_that_hangs_ends_its_daemon_processes(pair: Pair, exits: mock.Mock) -> None:
    """A DataLoader worker that hangs does not notice that its parent has gone."""
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(10 * _LIMIT,), daemon=True)
    worker.start()
    _held(pair.ranks[0])()
    worker.join(_LIMIT)

    assert worker.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("timeout", [8.0])
def test_a_launched_rank_that_hangs_is_killed_by_its_launcher(pair: Pair) -> None:
    """A process that is stopped, or holds Python's lock, does not exit by itself."""
    killed = threading.Event()
    pair.launched.kill.side_effect = killed.set
    pair.ranks[1]._closed.set()
    _held(pair.ranks[0])()

    assert killed.wait(_LIMIT)
    pair.launched.kill.assert_called_with()


def test_a_message_alone_ends_no_process(pair: Pair, exits: mock.Mock) -> None:
    """A rank that makes progress does not exit because rank 0 claims that it hangs."""
    failure = RankFailure("rank 1 hangs", rank=1)
    pair.ranks[1]._on_failure(failure)

    exits.now.assert_not_called()


def test_a_rank_that_finished_is_not_missed(pair: Pair) -> None:
    pair.ranks[1].close()
    with pair.ranks[0].wait():
        pass

    assert not pair.ranks[0]._failed.wait(3)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_the_watchdog_ends_no_healthy_run(
    rank: int, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(own: Heartbeat, failure: RankFailure | None) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(pair.ranks[rank]._exchange, "exchange", fail)
    done = threading.Event()
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            with pair.ranks[0].step("backward"), pair.ranks[1].step("backward"):
                done.wait(0.1)

    assert [record.getMessage() for record in caplog.records] == [f"failure detection is off on rank {rank}"]
    assert not any(watchdog._failed.is_set() for watchdog in pair.ranks)


def test_all_ranks_stop_before_the_same_batch(pair: Pair) -> None:
    taken = [0, 0]

    def train(rank: int, together: threading.Barrier) -> None:
        while not pair.ranks[rank].signals_before_batch():
            # A batch, for which the ranks need each other.
            together.wait(_LIMIT)
            taken[rank] += 1
            if rank == 1 and taken[1] == 3:
                pair.ranks[1].announce_signal(signal.SIGTERM)

    together = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2), [together, together]))

    assert taken[0] == taken[1] >= 3


def test_all_ranks_stop_before_the_same_batch_of_a_validation(pair: Pair) -> None:
    taken = [0, 0]

    def validate(rank: int) -> None:
        pair.ranks[rank].signals_before_batch()
        while not pair.ranks[rank].signals_before_batch(evaluated=9):
            taken[rank] += 1
            if rank == 1 and taken[1] == 3:
                pair.ranks[1].announce_signal(signal.SIGTERM)
                while not pair.ranks[1]._exchange.leader.is_signalled:
                    pair.ranks[1]._flush()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(validate, reversed(range(2))))

    assert taken[0] == taken[1] >= 3


def _stop(watchdog: Watchdog) -> None:
    """Take batches until all ranks stop."""
    while not watchdog.signals_before_batch():
        pass


def test_a_rank_that_is_far_behind_takes_what_it_missed_in_one_go(pair: Pair) -> None:
    """One decision for every batch would take minutes."""
    ahead = 1_000_000
    for _ in range(ahead):
        pair.ranks[1].signals_before_batch()
    pair.ranks[0].announce_signal(signal.SIGTERM)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_stop, pair.ranks))

    assert pair.heartbeats[0].batch == pair.heartbeats[1].batch > (ahead, 0)


def test_a_rank_that_waits_to_stop_learns_that_rank_0_is_gone(pair: Pair) -> None:
    pair.ranks[1].announce_signal(signal.SIGTERM)
    # It asks, rank 0 reads that, and it reads the answer.
    for rank in (1, 0, 1):
        pair.ranks[rank]._flush()
    _disconnect(pair.ranks[1])

    with pytest.raises(RankFailedError, match=r"rank 0 .* exited: its store closed"):
        _stop(pair.ranks[1])


@pytest.mark.parametrize("timeout", [8.0])
def test_a_rank_that_hangs_while_others_wait_to_stop_is_named(pair: Pair) -> None:
    pair.ranks[0].announce_signal(signal.SIGTERM)
    for watchdog in pair.ranks:
        watchdog._flush()

    with pytest.raises(RankFailedError, match=r"rank 1 .* has made no progress .*; rank 0 .* waits for it"):
        _stop(pair.ranks[0])


def test_a_signal_other_than_sigterm_is_handled_once(pair: Pair) -> None:
    handled: list[list[tuple[int, ...]]] = [[], []]

    def train(rank: int, together: threading.Barrier) -> None:
        while not handled[rank] or signal.SIGTERM not in handled[rank][-1]:
            if signals := pair.ranks[rank].signals_before_batch():
                handled[rank].append(signals)
                pair.ranks[rank].announce_signal(signal.SIGTERM)
            together.wait(_LIMIT)

    pair.ranks[1].announce_signal(signal.SIGUSR1)
    together = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, range(2), [together, together]))

    assert handled == [[(signal.SIGUSR1,), (signal.SIGTERM,)]] * 2


def test_ranks_that_all_handle_an_error_enter_a_collective(pair: Pair) -> None:
    errors = [KeyboardInterrupt(), KeyboardInterrupt()]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(Watchdog.confirm, pair.ranks, errors)) == [True, True]


def test_an_error_is_confirmed_once(pair: Pair) -> None:
    errors = [KeyboardInterrupt(), KeyboardInterrupt()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Watchdog.confirm, pair.ranks, errors))

    assert pair.ranks[1].confirm(errors[1])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_handles_an_error_does_not_disturb_a_collective(rank: int, pair: Pair) -> None:
    peer, wait = pair.ranks[1 - rank], threading.Event()

    def train() -> None:
        with peer.step("backward"):
            wait.wait(_LIMIT)
            peer.raise_if_failed()

    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(train)
        assert not pair.ranks[rank].confirm(ValueError("invalid batch"))
        assert peer._failed.wait(_LIMIT)
        wait.set()
        with pytest.raises(RankFailedError, match=rf"rank {rank} .* failed: ValueError: invalid batch"):
            trained.result()


def test_a_rank_that_handles_an_error_learns_that_another_one_failed(pair: Pair) -> None:
    pair.ranks[0].report_failure(ValueError("invalid batch"))
    with pytest.raises(RankFailedError, match=r"rank 0 .* failed: ValueError"):
        pair.ranks[1].confirm(KeyboardInterrupt())


def test_a_signal_handler_may_request_a_stop_at_any_moment(pair: Pair) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: pair.ranks[0].announce_signal(signal.SIGTERM))
    try:
        with pair.ranks[0]._lock:
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)

    assert pair.heartbeats[0].signals


def test_a_broken_connection_to_a_living_rank_0_is_replaced(pair: Pair) -> None:
    pair.ranks[1]._exchange._connection = broken_store()
    wait = _held(pair.ranks[1])
    pair.ranks[0].report_failure(ValueError("no such luck"))

    assert "failed: ValueError: no such luck" in str(wait())


def test_a_rank_that_knows_the_failure_does_not_connect_anew(pair: Pair) -> None:
    """Of a thousand ranks, each would, when the store of rank 0 closes some seconds after the failure."""
    follower = pair.ranks[1]
    with pytest.raises(RuntimeError), follower.step("backward"):  # noqa: PT012 - what fails is a wait.
        pair.ranks[0].report_failure(ValueError("no such luck"))
        follower._failed.wait(_LIMIT)
        with mock.patch.object(follower._exchange, "connect") as connect:
            follower._exchange._connection = broken_store()
            follower._flush()
            raise RuntimeError

    connect.assert_not_called()


@pytest.mark.parametrize("timeout", [8.0])
def test_an_error_while_the_store_does_not_answer_names_rank_0(
    pair: Pair, exits: mock.Mock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not every collective is counted: DDP exchanges its buckets in a forward pass."""

    # As of a rank 0 that was killed, while its DataLoader workers still hold its sockets.
    def fail(seconds: float, check: Callable[[], None]) -> None:
        raise RuntimeError("timed out")

    monkeypatch.setattr(pair.ranks[1]._exchange, "connect", fail)
    pair.ranks[1]._exchange._connection = broken_store()

    with pytest.raises(RankFailedError, match="has not answered"):
        pair.ranks[1].report_failure(RuntimeError("Read error: Connection reset by peer"))

    assert f"aborting: the store of {pair.ranks[0]._info} at" in capsys.readouterr().err
    assert pair.heartbeats[1].error is None


@pytest.mark.parametrize("rank", [0, 1])
@given(
    record=st.dictionaries(
        st.sampled_from([field.name for field in fields(Heartbeat)]) | st.text(max_size=5),
        st.none() | st.integers() | st.text(max_size=5) | st.dictionaries(st.text(max_size=2), st.text(max_size=2)),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_heartbeat_of_another_version_ends_no_run(rank: int, record: dict[str, Any], exits: mock.Mock) -> None:
    """The watchdog reads it, or is off."""
    infos = {number: RankInfo(number, "host", -1) for number in (0, 1)}
    config = RendezvousConfig("127.0.0.1", 1, rank, 2, timedelta(seconds=60))
    root = mock.create_autospec(TCPStore, instance=True)
    watchdog = Watchdog(RendezvousResult(config, root, 1, infos), LaunchedRanks())
    store = watchdog._exchange._connection = HashStore()
    for key in ("heartbeat/0", "heartbeat/1"):
        store.set(key, json.dumps({"run": 0, "failure": None, "decision": {}, **record}))
    with mock.patch.object(module._log, "warning"):
        watchdog._run(watchdog._exchange_once)

    assert not exits.now.called
    assert not exits.later.called


def test_a_launched_rank_that_has_torn_down_is_not_killed(pair: Pair, exits: mock.Mock) -> None:
    """Defect A5: its program handles the error, and would lose its traceback."""
    leader = pair.ranks[0]
    pair.ranks[1].close()
    leader._flush()
    leader._failure = RankFailure("rank 1 failed", 1)
    leader._limit_time(time.monotonic() + 1000)

    assert not leader._exchange.ranks[1].heartbeat.training
    pair.launched.kill.assert_not_called()


def test_a_rank_learns_that_rank_0_had_fewer_batches(pair: Pair) -> None:
    """Defect A10: not that its store closed."""
    wait = _held(pair.ranks[1])
    pair.ranks[1]._flush()
    pair.ranks[0].close()

    assert re.search(r"rank 0 .* left the job \(its data may have ended earlier\); rank 1 .* waits for it", str(wait()))


def test_a_signal_is_handled_although_the_watchdog_is_off(pair: Pair) -> None:
    """Defect A8."""
    pair.ranks[0]._is_off = True
    pair.ranks[0].announce_signal(signal.SIGTERM)

    assert pair.ranks[0].signals_before_batch() == (signal.SIGTERM,)


def test_without_detection_ranks_agree_on_signals_alone(jobs: list[RendezvousResult], exits: mock.Mock) -> None:
    """Defect A8."""
    watchdogs = [Watchdog(job, LaunchedRanks(), detects=False) for job in jobs]
    for watchdog in watchdogs:
        watchdog.start()
    watchdogs[1].report_failure(ValueError("no such luck"))
    watchdogs[0].announce_signal(signal.SIGTERM)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_stop, watchdogs))
    for watchdog in reversed(watchdogs):
        watchdog.close()

    assert jobs[0].heartbeat.batch == jobs[1].heartbeat.batch
    assert not exits.later.called


def test_strategies_of_a_process_that_overlap_train_until_the_last_one_closes(
    jobs: list[RendezvousResult], pair: Pair
) -> None:
    """Fabric's have no end, and are closed when Python collects them, at another time on each rank."""
    second = Watchdog(jobs[0], LaunchedRanks())
    second.start()
    pair.ranks[0].close()
    still = pair.heartbeats[0].training
    second.close()

    assert (still, pair.heartbeats[0].training) == (True, False)
