"""Monitor of a rank, for whose peers the test writes to the store."""

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hpu_core.distributed import processes, rendezvous
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failures import Failure, Report
from hpu_core.distributed.monitor import Monitor
from hpu_core.distributed.progress import END_OF_PROGRAM, Progress
from hpu_testing import free_port

from .jobs import launched_process, make_job, serve

LAUNCHED: dict[int, Any] = {}
KILLED = Failure("rank 1 (pid 101 on node) exited: killed by signal 9", 1)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Monitor]]:
    """Return a function that starts the monitor of a rank, which reports only when the test asks for it."""
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", mock.Mock())
    monkeypatch.setattr(faulthandler, "dump_traceback", mock.Mock())
    monkeypatch.setattr(os, "_exit", mock.Mock(side_effect=SystemExit))
    monkeypatch.setattr(processes, "LAUNCHED", LAUNCHED)
    monkeypatch.setattr(processes, "launcher_pid", lambda: None)
    LAUNCHED.clear()
    monkeypatch.setattr(Monitor, "_watch", lambda _: None)
    monitors = []
    port = free_port()
    servers = [serve(port)]

    def start(rank: int = 0, seconds: float = 60) -> Monitor:
        job = make_job(rank, seconds=seconds, port=port, root=servers[0])
        for other in range(2):
            _send(job, other, count=1)
        monitors.append(Monitor(job, Progress()))
        return monitors[-1]

    yield start
    for monitor in monitors:
        monitor._is_closed = True
        monitor.forget()


def _send(job: Any, rank: int, **fields: Any) -> None:
    """Write the report of another rank."""
    report = Report(rank, f"rank {rank} (pid {100 + rank} on node)", **fields)
    store = job.store(1)
    rendezvous.set_first(store, f"report/{rank}", "")
    store.set(f"report/{rank}", report.to_json())


def _read(monitor: Monitor, rank: int) -> Report:
    return Report(**json.loads(monitor.job.store(1).get(f"report/{rank}")))


def test_a_rank_publishes_its_progress(start: Callable[..., Monitor]) -> None:
    monitor = start(1)
    monitor._host.scope, monitor._host.place = "backward", 1
    monitor._update()

    report = _read(monitor, 1)
    assert (report.count, report.scope, report.place) == (2, "backward", 1)
    assert report.name.startswith(f"rank 1 (pid {os.getpid()} on ")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(os, "pidfd_open"), (os, "fork"), (os, "listdir"), (os, "readlink"), (Path, "read_text"), (Path, "read_bytes")],
)
def test_what_a_system_refuses_is_not_needed(
    owner: object, name: str, start: Callable[..., Monitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old kernels lack a call, processes run out, and a seccomp filter forbids to look at them."""
    monitor = start()
    monkeypatch.setattr(owner, name, mock.Mock(side_effect=PermissionError("not permitted")), raising=False)
    LAUNCHED[1] = launched_process()
    monitor._update()

    assert not monitor.is_off
    assert _read(monitor, 0).count == 2


def test_rank_0_names_the_failure_and_the_others_read_it(start: Callable[..., Monitor]) -> None:
    monitors = [start(rank) for rank in range(2)]
    _send(monitors[0].job, 1, count=2, error="ValueError: no")
    for monitor in monitors:
        monitor._update()

    for monitor in monitors:
        assert monitor.failure == Failure("rank 1 (pid 101 on node) failed: ValueError: no", 1)


def test_another_rank_judges_while_rank_0_is_silent(start: Callable[..., Monitor], monkeypatch: Any) -> None:
    monitor = start(1, seconds=6)
    _send(monitor.job, 0, count=2, place=11, scope="training step")
    monitor._update()
    monkeypatch.setattr(monitor._host, "signs", lambda: monitor._signs)
    monkeypatch.setattr(monitor, "_end_if_due", mock.Mock())
    monitor._moved -= 50
    monitor._seen = [seen - 50 for seen in monitor._seen]
    for _ in range(2):
        monitor._update()

    assert monitor.failure is not None
    assert monitor.failure.rank == 1


def test_a_rank_that_was_launched_here_is_named_by_its_exit(start: Callable[..., Monitor]) -> None:
    monitor = start()
    LAUNCHED[1] = launched_process(-9)
    monitor._update()

    assert monitor.failure == KILLED


def test_the_launcher_of_a_rank_is_named_by_its_exit(
    start: Callable[..., Monitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "launcher_pid", lambda: os.getppid() + 1)
    monitor = start(1)
    monitor._update()

    assert _read(monitor, 1).exits == {"0": "its process has ended"}


@pytest.mark.parametrize(
    ("error", "seconds", "message"),
    [
        (ConnectionRefusedError, 0, "rank 0 (pid 100 on node) exited: its store closed"),
        (TimeoutError, 0, None),
        (TimeoutError, 50, "rank 0 (pid 100 on node) has not answered for 50 s"),
    ],
    ids=["closed", "lost a moment ago", "lost for the timeout"],
)
def test_a_lost_store_shows_the_end_of_rank_0(
    error: type[OSError], seconds: float, message: str | None, start: Callable[..., Monitor], monkeypatch: Any
) -> None:
    monitor = start(1)
    monitor._host.scope = "backward"
    monitor._update()
    monkeypatch.setattr(rendezvous, "connect", mock.Mock(side_effect=error))
    monkeypatch.setattr(monitor, "_store", None)
    monkeypatch.setattr(monitor, "_end_if_due", mock.Mock())
    monkeypatch.setattr(monitor, "_look", mock.Mock())
    monitor._report.idle = seconds
    monitor._read -= seconds
    monitor._update()

    assert (None if monitor.failure is None else monitor.failure.message) == message


def test_a_job_that_was_stopped_or_suspended_goes_on(start: Callable[..., Monitor]) -> None:
    monitor = start()
    _send(monitor.job, 1, count=2, place=1, scope="backward")
    monitor._update()
    monitor._moved -= 500
    monitor._updated -= 500
    monitor._seen = [seen - 500 for seen in monitor._seen]
    monitor._update()

    assert monitor.failure is None


def test_a_doubt_is_one_warning(start: Callable[..., Monitor], caplog: pytest.LogCaptureFixture) -> None:
    monitor = start()
    monitor._host.scope, monitor._host.place = "backward", 1
    with mock.patch.object(monitor._host, "signs", return_value="still"):
        for count in (2, 3):
            _send(monitor.job, 1, count=count, place=1, scope="backward", idle=500.0)
            monitor._signs, monitor._moved = "still", time.monotonic() - 500
            monitor._update()

    assert monitor.failure is None
    assert len([record for record in caplog.records if "no rank has moved" in record.message]) == 1


def test_an_error_is_published_and_printed(start: Callable[..., Monitor], capsys: pytest.CaptureFixture[str]) -> None:
    monitor = start(1)
    monitor.fail(ValueError("invalid batch"))

    assert _read(monitor, 1).error == "ValueError: invalid batch"
    assert capsys.readouterr().err == "[rank 1] failed: ValueError: invalid batch\n"


def test_an_error_that_follows_from_a_peer_is_that_peers(start: Callable[..., Monitor]) -> None:
    """A collective may fail at once when a connection breaks, and the cause is known a moment later."""
    monitor = start()
    threading.Timer(0.05, lambda: monitor._set_failure(KILLED, 0.0)).start()
    with pytest.raises(RankFailedError, match="killed by signal 9") as raised:
        monitor.fail(RuntimeError("connection closed by peer"))

    assert isinstance(raised.value.__cause__, RuntimeError)
    assert monitor._report.error is None


@pytest.mark.parametrize(
    ("found", "still", "seconds", "ends"),
    [
        (KILLED, 6.0, 6.0, True),
        (KILLED, 6.0, 4.0, False),
        (KILLED, 1.0, 59.0, False),
        (KILLED, 1.0, 61.0, True),
        (Failure("rank 0 has made no progress", 0), 40.0, 6.0, True),
    ],
    ids=["stands still", "may still raise", "works", "works for the timeout", "is named"],
)
def test_a_host_that_cannot_raise_is_ended(
    found: Failure, still: float, seconds: float, ends: bool, start: Callable[..., Monitor]
) -> None:
    monitor = start()
    monitor._set_failure(found, 1000.0)
    monitor._report.idle = still
    if ends:
        with pytest.raises(SystemExit):
            monitor._end_if_due(found, 1000.0 + seconds)
    else:
        monitor._end_if_due(found, 1000.0 + seconds)

    assert os._exit.called is ends  # type: ignore[attr-defined] # A fixture has put a mock in its place.


@pytest.mark.parametrize(("silent", "is_killed"), [(5.0, True), (3.0, False)], ids=["frozen", "runs Python"])
def test_a_launched_rank_that_runs_no_python_is_killed(
    silent: float, is_killed: bool, start: Callable[..., Monitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = mock.Mock()
    monkeypatch.setattr(os, "kill", kill)
    monitor = start()
    monitor._update()
    LAUNCHED[1] = launched_process()
    monitor._set_failure(KILLED, 0.0)
    monitor._kill_frozen(KILLED, monitor._seen[1] + silent)

    assert kill.mock_calls == [mock.call(1, signal.SIGKILL)] * is_killed


def test_an_error_in_it_switches_it_off_and_no_more(
    start: Callable[..., Monitor], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = start()
    monkeypatch.setattr(monitor, "_read_reports", mock.Mock(side_effect=ZeroDivisionError("no")))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            monitor._update()

    assert [record.message for record in caplog.records] == [
        "failure detection is off on rank 0: ZeroDivisionError: no"
    ]
    assert _read(monitor, 0).state == "off"
    assert monitor.failure is None


def test_others_learn_that_the_detection_of_a_rank_is_off(start: Callable[..., Monitor]) -> None:
    """Its last report was that of a rank in training."""
    monitors = [start(rank) for rank in range(2)]
    for monitor in reversed(monitors):
        monitor._update()
    assert monitors[0]._ranks[1].is_active

    with mock.patch.object(monitors[1], "_look", side_effect=ZeroDivisionError("no")):
        monitors[1]._update()
    monitors[0]._update()

    assert not monitors[0]._ranks[1].is_active


def test_a_rank_exits_once_the_others_have_left(start: Callable[..., Monitor], monkeypatch: Any) -> None:
    """The bridge's exit would meet a barrier of another rank, which then goes on."""
    monitor, states = start(1), ["training", "left"]

    def sleep(_: float) -> None:
        assert (_read(monitor, 1).state, _read(monitor, 1).wait) == ("left", END_OF_PROGRAM)
        _send(monitor.job, 0, count=4 - len(states), state=states.pop(0))

    monkeypatch.setattr(time, "sleep", sleep)
    _send(monitor.job, 0, count=2)
    monitor._at_exit()

    assert states == []


def test_a_rank_exits_after_rank_0_has(start: Callable[..., Monitor], monkeypatch: Any) -> None:
    """Rank 0 may have left and closed its store before this one reads it."""
    monitor = start(1)
    _send(monitor.job, 0, count=2)
    monitor._update()
    monkeypatch.setattr(rendezvous, "connect", mock.Mock(side_effect=ConnectionRefusedError))
    monkeypatch.setattr(monitor, "_store", None)
    monitor._at_exit()

    assert monitor.failure is None


def test_a_failure_ends_a_rank_that_waits_for_the_others_at_its_exit(
    start: Callable[..., Monitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it is the barrier of the bridge, for which another rank may wait."""
    monitor = start(1)
    _send(monitor.job, 0, count=2)
    left = Failure("rank 1 left the job", 1)
    monkeypatch.setattr(time, "sleep", lambda _: monitor.job.store(1).set("failure", json.dumps(left)))
    monkeypatch.setattr(monitor, "_exit_period", 0.0)

    with pytest.raises(SystemExit):
        monitor._at_exit()
    os._exit.assert_called_once_with(1)  # type: ignore[attr-defined] # A fixture has put a mock in its place.


def test_an_error_that_ends_a_program_of_fabric_is_published(
    start: Callable[..., Monitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = start(1)
    monkeypatch.setattr(sys, "last_value", ValueError("invalid batch"), raising=False)
    monitor._at_exit()

    assert _read(monitor, 1).error == "ValueError: invalid batch"


def test_an_exit_after_a_failure_is_limited_once(start: Callable[..., Monitor]) -> None:
    """At exit the bridge destroys its process groups, which waits for dead peers."""
    monitor = start(1)
    monitor._set_failure(KILLED, 0.0)
    with mock.patch.object(Monitor, "forget") as forget:
        monitor._at_exit()

    forget.assert_called_once_with()
    faulthandler.dump_traceback_later.assert_called_once_with(mock.ANY, exit=True, file=mock.ANY)  # type: ignore[attr-defined] # A fixture has put a mock in its place.


@pytest.mark.parametrize(("state", "is_killed"), [("ended", False), ("left", True)])
def test_a_launched_rank_that_has_not_ended_is_killed_at_exit(
    state: str, is_killed: bool, start: Callable[..., Monitor]
) -> None:
    """At exit the bridge of one that has waits for this rank."""
    monitor = start(seconds=1.2)
    monitor._set_failure(KILLED, 0.0)
    LAUNCHED[1] = launched_process()
    _send(monitor.job, 1, count=2, state=state)
    monitor._at_exit()

    assert LAUNCHED[1].kill.called is is_killed


def test_a_rank_that_has_failed_remembers_it_until_its_exit(start: Callable[..., Monitor]) -> None:
    """It may leave before it has read the failure."""
    monitor = start(1)
    monitor._report.error = "KeyError: 'a missing column'"
    with mock.patch.object(Monitor, "forget") as forget:
        monitor.close()

    assert monitor.failure is None
    forget.assert_not_called()
