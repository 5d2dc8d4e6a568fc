"""Monitor: the thread of a rank that publishes its progress, reads the failure, and ends a host that cannot raise it.

Each rank has one key in the job's store. Rank 0 reads all of them in one request and writes the failure; while it is
silent, as in a call that keeps Python's lock, the first of the next ranks that is not does so.
"""

import atexit
import contextlib
import faulthandler
import json
import logging
import multiprocessing.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hpu_core.distributed import failures, processes, progress, rendezvous
from hpu_core.distributed.errors import RankFailedError, describe_error, print_line
from hpu_core.distributed.failures import Failure, Report

_log = logging.getLogger(__name__)

_STDERR: Final = 2
_LOOK_INTERVAL: Final = 0.02
# Reports per second of all ranks, which rank 0 reads: see docs/records/scale.md.
_REPORT_RATE: Final = 1000
# Ranks that may stand in for rank 0, itself included.
_LEADERS: Final = 8
_FAILURE: Final = "failure"


class Monitor:
    """Failure detection of one training on this rank.

    Attributes:
        job: The rendezvous.
        failure: Why the job cannot continue; None while it can.
        is_off: Whether failure detection has failed.
        interval: Seconds between two reports.
    """

    def __init__(self, job: rendezvous.Job, host: progress.Progress) -> None:
        self.job, self._host, self._timeout = job, host, job.timeout.total_seconds()
        self.failure: Failure | None = None
        self.is_off = self._is_closed = self._has_warned = False
        self.interval = min(max(1.0, job.world_size / _REPORT_RATE), self._timeout / 20)
        # For a host to raise, for what cleans up after it, and for its process to exit.
        self._exit_period = min(max(5.0, 2 * self.interval), self._timeout / 6)
        self._limit = self._timeout - 3 * self._exit_period
        now = self._moved = self._updated = self._failed = self._read = time.monotonic()
        self._signs: object = None
        name = f"rank {job.rank} (pid {os.getpid()} on {socket.gethostname()})"
        self._report = Report(job.rank, name, host=job.rank - job.local_rank, count=1)
        self._ranks = [Report(rank, f"rank {rank}") for rank in range(job.world_size)]
        self._seen = [now] * job.world_size
        self._lock, self._stop, self._pid = threading.RLock(), threading.Event(), os.getpid()
        # Connected by the first report.
        self._store: rendezvous.Store | None = None
        store = job.store(job.runs)
        # A store does not answer for what is not there, and other ranks may begin this training later.
        for rank in range(job.world_size) if job.rank == 0 else {0, self._report.host, job.rank}:
            rendezvous.set_first(store, _key(rank), self._ranks[rank].to_json())
        store.set(_key(job.rank), self._report.to_json())
        rendezvous.set_first(store, _FAILURE, json.dumps(None))
        self._thread = threading.Thread(target=self._watch, name="hpu-monitor", daemon=True)
        self._thread.start()
        # atexit comes before what the bridge does at exit; a process of multiprocessing exits without atexit.
        atexit.register(self._at_exit)
        self._finalizer = multiprocessing.util.Finalize(None, self._at_exit, exitpriority=10)

    def fail(self, error: BaseException) -> None:
        """Publish that this rank leaves with an error, and print it, unless another rank is the reason.

        Raises:
            RankFailedError: Another rank is.
        """
        if isinstance(error, RankFailedError):
            return
        deadline = time.monotonic() + 5 * self.interval
        # A collective may fail when a connection breaks, and the reason is known a moment later.
        while isinstance(error, RuntimeError) and not (self.failure or self.is_off) and time.monotonic() < deadline:
            time.sleep(_LOOK_INTERVAL)
        if self.failure is not None and self.failure.rank != self.job.rank:
            raise RankFailedError(self.failure.message) from error
        self._report.error = describe_error(error)
        print_line(f"[rank {self.job.rank}] failed: {self._report.error}")
        self._update()

    def close(self) -> None:
        """Publish that this rank takes part in the training no more."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed, self._report.state = True, "left"
        self._update()
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(self._exit_period)
        if not self._has_failed and not self.job.hosts_store:
            self.forget()

    def forget(self) -> None:
        """Do nothing at the end of the program."""
        atexit.unregister(self._at_exit)
        self._finalizer.cancel()

    @property
    def _has_failed(self) -> bool:
        return self.failure is not None or self._report.error is not None

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self.forget()
        # Fabric has no hook for exceptions.
        if not self._is_closed and isinstance(error := getattr(sys, "last_value", None), BaseException):
            try:
                self.fail(error)
            except RankFailedError as failure:
                print_line(f"[rank {self.job.rank}] aborting: {failure}")
        if not self._has_failed:
            self._report.state = "left"
            self._host.wait, self._host.moves = progress.END_OF_PROGRAM, self._host.moves + 1
            # The bridge waits at exit in a barrier, which another one of a rank that trains would meet. So a failure
            # ends this process here, which stands still, unless its program has left the training before.
            self._update_while(lambda _: self._is_any_active() if self.failure is None else not self._is_closed)
        self.close()
        if not self._has_failed:
            return
        self._report.state = "ended"
        self._update_while(self._is_needed)
        for process in self._launched():
            process.kill()
        # At exit the bridge waits for dead peers. This timer does not need Python's lock.
        devnull = os.open(os.devnull, os.O_WRONLY)
        faulthandler.dump_traceback_later(2 * self._exit_period, exit=True, file=devnull)

    def _update_while(self, condition: Callable[[float], bool]) -> None:
        """Update while something is so, by the seconds since the first time."""
        start = time.monotonic()
        self._update()
        while not self.is_off and condition(time.monotonic() - start):
            time.sleep(self.interval / 5)
            self._update()

    def _is_any_active(self) -> bool:
        """Return whether another rank trains, as far as this one reads reports; not one that is silent for long."""
        oldest = time.monotonic() - self._limit
        return any(rank.is_active and seen > oldest for rank, seen in zip(self._ranks, self._seen, strict=True))

    def _is_needed(self, seconds: float) -> bool:
        """Return whether others need this process, some seconds after its program has ended with a failure."""
        # The store closes with this process, and the others have yet to read why.
        is_read = seconds > 2 * self.interval or not self.job.hosts_store
        return not is_read or (seconds < 3 * self._exit_period and bool(self._launched()))

    def _launched(self) -> list[subprocess.Popen[bytes]]:
        """Return the ranks that this process launched and that have not ended: their bridge waits for this process."""
        ranks = processes.LAUNCHED.items()
        return [each for rank, each in ranks if each.poll() is None and self._ranks[rank].state != "ended"]

    def _watch(self) -> None:
        with self._guarded():
            self._update()
            while not self._stop.wait(self.interval) and not self.is_off:
                self._update()

    def _update(self) -> None:
        """Publish the report, read the others', and end what cannot end by itself."""
        with self._lock, self._guarded():
            now = time.monotonic()
            if self.is_off:
                return
            if now - self._updated > self._limit / 2:
                # The whole job was stopped, or its machine suspended.
                self._moved = self._read = now
                self._seen = [now] * self.job.world_size
            self._updated = now
            self._look(now)
            try:
                self._store = self._store or self.job.store(self.job.runs, connection=rendezvous.connect(self.job))
                self._store.set(_key(self.job.rank), self._report.to_json())
                self._read_reports(self._store, now)
            except (OSError, RuntimeError) as error:
                self._store = None
                self._decide_alone(error, now)
            if self.failure is not None:
                self._kill_frozen(self.failure, now)
                self._end_if_due(self.failure, now)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Return a context in which an error ends failure detection, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a healthy training.
            self.is_off, self._report.state, self._report.count = True, "off", self._report.count + 1
            warn_off(self.job.rank, error)
            with contextlib.suppress(Exception):
                # Over the connection of earlier reports, behind which another could come first.
                store = self._store or self.job.store(self.job.runs)
                store.set(_key(self.job.rank), self._report.to_json())

    def _look(self, now: float) -> None:
        """Report what the host does, and what is seen of the processes around it."""
        report, host = self._report, self._host
        if (signs := host.signs()) != self._signs:
            self._signs, self._moved = signs, now
        report.idle, report.count = now - self._moved, report.count + 1
        if report.error is None:
            report.place, report.scope, report.waits, report.wait = host.place, host.scope, host.waits, host.wait
        report.line = host.line() if report.idle > 2 * self.interval else ""
        report.exits = {str(rank): reason for rank, reason in processes.exits(report.host).items()}
        states = {rank: processes.state(Path(f"/proc/{pid}")) for rank, pid in self._neighbors().items()}
        report.stopped = [rank for rank, state in states.items() if state == "T"]

    def _read_reports(self, store: rendezvous.Store, now: float) -> None:
        """Read the failure; on rank 0, or while it is silent, all reports as well, and decide."""
        own, silence = self.job.rank, 5 * self.interval
        is_leader = own == 0 or (own < _LEADERS and now - self._seen[0] > silence)
        ranks = range(self.job.world_size) if is_leader else [*{0, *self._neighbors()}]
        *texts, written = rendezvous.read(store, [*map(_key, ranks), _FAILURE])
        for rank, text in zip(ranks, texts, strict=True):
            report = Report(**json.loads(text))
            if report.count != self._ranks[rank].count:
                self._ranks[rank], self._seen[rank] = report, now
        self._read = now
        if found := json.loads(written):
            self._set_failure(Failure(*found), now)
        elif is_leader and all(now - seen > silence for seen in self._seen[:own]):
            self._decide(store, now)

    def _decide(self, store: rendezvous.Store, now: float) -> None:
        """Write the failure if there is one; before silence becomes one, warn once."""
        exits = {int(rank): reason for each in self._ranks for rank, reason in each.exits.items()}
        stopped = {rank for each in self._ranks for rank in each.stopped}
        for each, seen in zip(self._ranks, self._seen, strict=True):
            each.elapsed, each.exit, each.is_stopped = now - seen, exits.get(each.rank), each.rank in stopped
        if found := failures.find_failure(self._ranks, self._limit, 3 * self.interval):
            text = rendezvous.set_first(store, "first failure", json.dumps(found))
            store.set(_FAILURE, text)
            self._set_failure(Failure(*json.loads(text)), now)
        elif not self._has_warned and (warning := failures.find_warning(self._ranks, self._limit / 2)):
            self._has_warned = True
            _log.warning(warning)

    def _decide_alone(self, error: Exception, now: float) -> None:
        """Decide about rank 0 without its store: a refused connection shows its end, a lost network does not."""
        own, first = self._report, self._ranks[0]
        closed = "its store closed" if isinstance(error, ConnectionRefusedError) else None
        first.elapsed, first.exit = now - self._read, own.exits.get("0", closed)
        if own.state != "training":
            return
        found = failures.find_failure([first, own], float("inf"), 3 * self.interval)
        may_wait = own.may_wait or own.place > first.place
        if found is None and may_wait and min(own.idle, first.elapsed) > self._limit:
            found = Failure(f"{first.name} has not answered for {first.elapsed:.0f} s", 0)
        if found is not None:
            self._set_failure(found, now)

    def _set_failure(self, found: Failure, now: float) -> None:
        if self.failure is None:
            self.failure, self._failed = found, now

    def _end_if_due(self, found: Failure, now: float) -> None:
        """End this process if its host cannot raise the failure: it stands still, or works on for the timeout."""
        seconds = now - self._failed
        is_idle = min(self._report.idle, seconds) > self._exit_period and self._report.error is None
        if self._is_closed or not (is_idle or seconds > self._timeout):
            return
        print_line(f"[rank {self.job.rank}] aborting: {found.message}")
        if found.rank == self.job.rank:
            faulthandler.dump_traceback(_STDERR)
        os._exit(1)

    def _kill_frozen(self, found: Failure, now: float) -> None:
        """Kill the ranks around this one that run no Python, and so can neither raise the failure nor exit."""
        for rank, pid in self._neighbors().items():
            seconds = now - max(self._seen[rank], self._failed)
            if self._store is not None and self._ranks[rank].state == "training" and seconds > 4 * self.interval:
                print_line(f"[rank {rank}] aborting: {found.message}. It runs no Python and is killed")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _neighbors(self) -> dict[int, int]:
        return processes.neighbors(self._report.host)


def warn_off(rank: int, error: Exception) -> None:
    """Warn that failure detection has failed on a rank, which trains on."""
    _log.warning("failure detection is off on rank %d: %s", rank, describe_error(error))


def _key(rank: int) -> str:
    return f"report/{rank}"
