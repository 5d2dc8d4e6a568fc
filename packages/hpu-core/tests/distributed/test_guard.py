"""Guards of two ranks, whose store is in this process; what would end a rank is replaced."""

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest

from hpu_core.distributed import guard as module
from hpu_core.distributed.failure_detection import FROZEN, STOPPED, Heartbeat, RankFailure
from hpu_core.distributed.guard import QUIET, WITH_STACKS, Guard
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.step_clock import StepClock
from hpu_core.distributed.store import RendezvousConfig

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore, TCPStore
else:
    from torch.distributed import HashStore

_TIMEOUT = 600.0
KILLED = RankFailure("rank 1 (pid 101 on node) exited: killed by signal 9", 1)


class Rank:
    """A rank that trains, and its guard.

    Attributes:
        heartbeat: Its heartbeat.
    """

    def __init__(self, rank: int, store: HashStore, **options: Any) -> None:
        config = RendezvousConfig("127.0.0.1", 1, rank, 2, timedelta(seconds=_TIMEOUT))
        names = {number: f"rank {number} (pid {100 + number} on node)" for number in range(2)}
        self.clock, self.heartbeat = StepClock(), Heartbeat(run=1, training=True)
        store.set(f"heartbeat/{rank}", Heartbeat().to_json())
        job = RendezvousResult(config, cast("TCPStore", store), 1, names)
        self.guard = Guard(job, self.clock, 100 + rank, **options)
        self.guard._store = store
        self.post()

    def post(self, **changes: Any) -> None:
        """Send a heartbeat."""
        self.heartbeat = replace(self.heartbeat, **changes)
        self.clock.from_rank.write(self.heartbeat)

    @property
    def failure(self) -> RankFailure | None:
        """The failure that the rank receives."""
        return self.clock.from_guard.read().failure


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def ranks(now: list[float]) -> list[Rank]:
    """Two ranks that have exchanged their first heartbeats."""
    store = HashStore()
    ranks = [Rank(rank, store) for rank in range(2)]
    _exchange(ranks)
    return ranks


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Record of kills."""
    kill = mock.Mock()
    monkeypatch.setattr(os, "kill", kill)
    return kill


def _exchange(ranks: list[Rank]) -> None:
    for rank in (ranks[1], ranks[0], ranks[1]):
        rank.guard.exchange()


def _kill(ranks: list[Rank]) -> None:
    """Have rank 1 be killed, which rank 0 launched."""
    ranks[0].post(exits={"1": "killed by signal 9"})
    ranks[1].guard._has_exited = True


def _pass(ranks: list[Rank], now: list[float], seconds: int, *frozen: Rank) -> None:
    """Let seconds pass, in which guards watch, and Python runs on the ranks that are not frozen."""
    for _ in range(seconds):
        now[0] += 1
        for rank in ranks:
            if rank not in frozen:
                rank.clock.record_activity()
            rank.guard._watch(now[0])
        _exchange(ranks)


def test_healthy_ranks_have_no_failure(ranks: list[Rank], now: list[float]) -> None:
    _pass(ranks, now, 5)

    assert [rank.failure for rank in ranks] == [None, None]
    assert [rank.clock["others"] for rank in ranks] == [1, 1]


def test_the_error_of_a_rank_reaches_those_that_wait_for_it(
    ranks: list[Rank], now: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    ranks[1].post(error="ValueError: no")
    with ranks[0].clock.scope("training step"), ranks[0].clock.scope("backward"):
        _pass(ranks, now, 3)

    assert ranks[0].failure == ranks[1].failure
    assert ranks[0].failure is not None
    assert ranks[0].failure.message.endswith(
        "failed: ValueError: no; rank 0 (pid 100 on node) waits for it during backward"
    )
    # The rank that failed prints its error itself.
    assert capfd.readouterr().err == f"[rank 0] aborting: {ranks[0].failure.message}\n"


def test_a_process_that_died_is_named_with_its_signal(ranks: list[Rank]) -> None:
    """Its launcher knows."""
    _kill(ranks)
    _exchange(ranks)

    assert ranks[0].failure == KILLED


def test_a_process_that_finished_may_exit_before_its_last_heartbeat_arrives(
    ranks: list[Rank], now: list[float]
) -> None:
    ranks[0].post(exits={"1": "exit code 0"})
    ranks[0].guard.exchange()
    assert ranks[0].failure is None

    ranks[1].post(training=False)
    ranks[1].guard._has_exited = True
    _exchange(ranks)
    _pass(ranks, now, 9)
    assert ranks[0].failure is None


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_process_of_another_launcher_has_ended(
    is_connected: bool, ranks: list[Rank], now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be killed before its guard has found the store."""
    guard = ranks[1].guard
    if not is_connected:
        monkeypatch.setattr(RendezvousResult, "store", lambda *_, store=guard._store: store)
        monkeypatch.setattr(module, "open_store", mock.Mock())
        guard._store = None
    guard._has_exited = True
    ranks[1].guard.exchange(is_last=True)
    for _ in range(4):
        now[0] += 1
        ranks[0].guard.exchange()

    assert ranks[0].failure == RankFailure("rank 1 (pid 101 on node) exited: its process has ended", 1)


def test_a_process_that_has_left_may_end(ranks: list[Rank], now: list[float]) -> None:
    ranks[1].post(training=False)
    ranks[1].guard._has_exited = True
    ranks[1].guard.exchange(is_last=True)
    for _ in range(9):
        now[0] += 1
        ranks[0].guard.exchange()

    assert ranks[0].failure is None
    assert ranks[0].clock["others"] == 0


def test_a_rank_in_the_next_training_has_left(ranks: list[Rank]) -> None:
    ranks[0].post(training=False)
    ranks[1].post(run=2)
    _exchange(ranks)

    assert ranks[0].clock["others"] == 0


def test_all_ranks_learn_before_which_batch_they_stop(ranks: list[Rank]) -> None:
    ranks[1].clock["signals"] |= 1 << signal.SIGTERM
    _exchange(ranks)
    assert all(rank.clock.from_guard.read().has_signals for rank in ranks)

    for rank in ranks:
        rank.post(waiting=(4, 0))
    _exchange(ranks)

    assert {
        (rank.clock.from_guard.read().decision.batch, rank.clock.from_guard.read().decision.signals) for rank in ranks
    } == {((4, 0), (signal.SIGTERM,))}


def test_a_rank_goes_on_while_another_has_yet_to_learn_that_all_handle_an_error(
    ranks: list[Rank], now: list[float]
) -> None:
    for rank in ranks:
        rank.post(pending_error="KeyboardInterrupt")
    _exchange(ranks)
    assert [rank.clock.from_guard.read().common_wait for rank in ranks] == [1, 1]

    ranks[1].post(pending_error=None)
    ranks[1].clock["waits"] = 2
    with ranks[1].clock.scope("training step"):
        _pass(ranks, now, 3)

    assert [rank.failure for rank in ranks] == [None, None]


def test_without_detection_ranks_agree_on_signals_only(now: list[float]) -> None:
    store = HashStore()
    ranks = [Rank(rank, store, detects=False) for rank in range(2)]
    _exchange(ranks)
    ranks[0].post(exits={"1": "killed by signal 9"})
    ranks[1].clock["signals"] |= 1 << signal.SIGTERM
    _exchange(ranks)

    assert (ranks[0].failure, ranks[0].clock.from_guard.read().has_signals) == (None, True)


def test_a_frozen_rank_is_no_failure_while_it_loads(ranks: list[Rank], now: list[float], kill: mock.Mock) -> None:
    """It may read its data with the GIL, as may any rank that does not train."""
    _pass(ranks, now, 1)
    _pass(ranks, now, 60, ranks[1])

    assert ranks[0].guard.ranks[1].heartbeat.frozen == FROZEN
    assert ranks[0].failure is None
    kill.assert_not_called()

    ranks[1].post(training=False)
    _pass(ranks, now, 1, ranks[1])
    assert ranks[0].guard.ranks[1].heartbeat.frozen is None


def test_the_guard_of_a_stopped_rank_says_so(ranks: list[Rank], now: list[float]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        program.send_signal(signal.SIGSTOP)
        os.waitpid(program.pid, os.WUNTRACED)
        ranks[1].guard._pid = program.pid
        _pass(ranks, now, 1)
        _pass(ranks, now, 60, ranks[1])
        program.send_signal(signal.SIGCONT)
        program.kill()

    assert ranks[0].guard.ranks[1].heartbeat.frozen == STOPPED


def test_a_frozen_rank_is_killed_some_seconds_after_a_failure(
    ranks: list[Rank], now: list[float], kill: mock.Mock
) -> None:
    """As one in `torch.hpu.synchronize`, which keeps the GIL."""
    ranks[1].post(error="ValueError: no", training=False, exits={})
    ranks[0].clock["scope"] = 3
    ranks[0].clock["batch"], ranks[0].clock["stage"] = 1, 2
    _pass(ranks, now, 6, ranks[0])
    assert ranks[0].failure is not None
    kill.assert_not_called()

    _pass(ranks, now, 6, ranks[0])
    kill.assert_called_with(100, signal.SIGKILL)


def _orders(rank: Rank, ranks: list[Rank], now: list[float], seconds: int) -> int:
    _pass(ranks, now, seconds)
    return rank.clock["order"]


def test_a_blocked_rank_has_a_grace_period(ranks: list[Rank], now: list[float], kill: mock.Mock) -> None:
    _kill(ranks)
    ranks[0].post(call="all_reduce")

    assert [_orders(ranks[0], ranks, now, seconds) for seconds in (6, 2)] == [0, QUIET]
    # The rank exits, or keeps the GIL.
    _pass(ranks, now, 3)
    kill.assert_called_with(100, signal.SIGKILL)


def test_a_blocked_rank_whose_python_runs_may_go_on(ranks: list[Rank], now: list[float]) -> None:
    """A callback may write a file while the device waits."""
    _kill(ranks)
    ranks[0].clock["recorded"] = 1
    for second in range(60):
        with mock.patch.object(ranks[0].clock, "record_activity", lambda second=second: _move(ranks[0].clock, second)):
            assert _orders(ranks[0], ranks, now, 1) == 0


def _move(clock: StepClock, place: int) -> None:
    clock["instruction"], clock["activity"] = place, clock["activity"] + 1


def test_a_rank_that_works_for_itself_has_the_timeout(ranks: list[Rank], now: list[float]) -> None:
    _kill(ranks)

    assert [_orders(ranks[0], ranks, now, seconds) for seconds in (590, 10)] == [0, QUIET]


def test_user_code_after_the_training_is_not_ended(ranks: list[Rank], now: list[float]) -> None:
    _kill(ranks)
    _pass(ranks, now, 1)
    ranks[0].post(training=False)

    assert _orders(ranks[0], ranks, now, 620) == 0


def test_a_rank_that_hangs_prints_its_stacks(ranks: list[Rank], now: list[float]) -> None:
    ranks[0].clock["recorded"], ranks[0].clock["steps"] = 1, 1
    ranks[1].post(line="data.py:31 in load")
    _pass(ranks, now, 590)
    assert ranks[0].failure is not None
    assert ranks[0].failure.message.startswith("rank 1 (pid 101 on node) has made no progress for 58")
    assert " at data.py:31 in load; rank 0 " in ranks[0].failure.message

    assert ranks[1].clock["order"] == WITH_STACKS


def test_a_message_alone_ends_no_rank(ranks: list[Rank], now: list[float]) -> None:
    """A rank that knows that it has moved raises instead."""
    ranks[1].guard._set_failure(RankFailure("rank 1 has made no progress", 1))

    assert _orders(ranks[1], ranks, now, 20) == 0


def test_stacks_are_printed_if_no_single_rank_is_at_fault(ranks: list[Rank], now: list[float]) -> None:
    ranks[0].guard._set_failure(RankFailure("no rank has made progress for 9 s"))
    ranks[0].post(call="barrier")

    assert _orders(ranks[0], ranks, now, 7) == WITH_STACKS


@pytest.fixture
def broken(ranks: list[Rank], monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    """Close the store of the ranks, and return whether its port refuses connections."""
    monkeypatch.setattr(module, "open_store", mock.Mock(side_effect=RuntimeError("no store")))
    for rank in ranks:
        rank.guard._store = None
    with mock.patch.object(module, "is_refused", return_value=True) as is_refused:
        yield is_refused


def test_a_closed_store_is_the_exit_of_rank_0(ranks: list[Rank], broken: mock.Mock) -> None:
    ranks[1].guard.exchange()

    assert ranks[1].failure == RankFailure("rank 0 (pid 100 on node) exited: its store closed", 0)


def test_a_closed_store_of_rank_0_that_has_left_is_a_failure_for_a_rank_that_waits(
    ranks: list[Rank], now: list[float], broken: mock.Mock
) -> None:
    ranks[1].guard.ranks[0].heartbeat.training = False
    ranks[1].guard.exchange()
    failures = [ranks[1].failure]
    with ranks[1].clock.scope("training step"):
        ranks[1].guard.exchange()
        now[0] += 2
        ranks[1].guard.exchange()
    failures.append(ranks[1].failure)

    left = "rank 0 (pid 100 on node) left the job (its data may have ended earlier)"
    message = f"{left}; rank 1 (pid 101 on node) waits for it during training step"
    assert failures == [None, RankFailure(message, 0)]


def test_a_store_out_of_reach_is_a_failure_after_the_stall_timeout(
    ranks: list[Rank], now: list[float], broken: mock.Mock
) -> None:
    broken.return_value = False
    ranks[1].post(call="all_reduce")
    for _ in range(590):
        now[0] += 1
        ranks[1].guard._watch(now[0])
    ranks[1].guard.exchange()

    assert ranks[1].failure is not None
    assert ranks[1].failure.message.startswith("rank 0 (pid 100 on node) has sent no heartbeat for 58")
    assert ranks[1].failure.message.endswith("; rank 1 (pid 101 on node) waits for it during all_reduce")


def test_rank_0_without_heartbeats_is_no_failure_for_a_rank_that_does_not_wait(
    ranks: list[Rank], now: list[float], broken: mock.Mock
) -> None:
    for _ in range(590):
        now[0] += 1
        ranks[1].guard._watch(now[0])

    assert ranks[1].guard.failure is None


def test_a_machine_that_was_suspended_has_its_time_again(ranks: list[Rank], now: list[float]) -> None:
    ranks[1].post(call="all_reduce")
    _pass(ranks, now, 5)
    now[0] += 3600
    _pass(ranks, now, 5)

    assert [rank.failure for rank in ranks] == [None, None]


def test_a_new_training_forgets_the_last(ranks: list[Rank], now: list[float]) -> None:
    ranks[1].post(error="ValueError: no", training=False)
    ranks[0].clock["waits"] = 1
    ranks[0].post(call="barrier")
    _pass(ranks, now, 5)
    assert ranks[0].failure is not None

    for rank in ranks:
        rank.heartbeat = Heartbeat(run=2, training=True)
        rank.post()
    _pass(ranks, now, 5)

    assert [rank.failure for rank in ranks] == [None, None]


def test_only_an_exchange_begins_with_a_new_training(ranks: list[Rank], now: list[float]) -> None:
    """While it reads the heartbeats of the last training, in which a rank may have left."""
    ranks[1].post(training=False)
    _exchange(ranks)
    ranks[0].post(run=2)
    ranks[0].guard._watch(now[0])
    assert not ranks[0].guard.ranks[1].heartbeat.training

    ranks[0].guard.exchange()
    assert ranks[0].guard.ranks[1].heartbeat.training


def test_a_guard_publishes_nothing_before_its_first_training() -> None:
    """Another watchdog, of a strategy with another timeout, numbers its trainings after those in the store."""
    store = HashStore()
    rank = Rank(1, store)
    store.set("heartbeat/1", Heartbeat(run=7).to_json())
    rank.guard._clock = StepClock()

    rank.guard.exchange()

    assert Heartbeat.from_json(store.get("heartbeat/1")).run == 7


@pytest.mark.parametrize("method", ["exchange", "_watch"])
def test_an_error_of_the_guard_ends_it_with_one_line(
    ranks: list[Rank], method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks[1].guard.process = os.pidfd_open(os.getpid())
    with mock.patch.object(ranks[1].guard, method, side_effect=ZeroDivisionError("no")):
        ranks[1].guard.run()

    assert capfd.readouterr().err == "failure detection is off on rank 1: ZeroDivisionError: no\n"


def test_descriptors_may_be_as_large_as_those_of_a_program_with_many_files(
    ranks: list[Rank], capfd: pytest.CaptureFixture[str]
) -> None:
    ranks[1].post(training=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        process = os.pidfd_open(ended.pid)
        ranks[1].guard.process = fcntl.fcntl(process, fcntl.F_DUPFD, 2048)
        os.close(process)
    try:
        ranks[1].guard.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert not capfd.readouterr().err
