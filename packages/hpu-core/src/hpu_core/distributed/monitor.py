"""Monitor: the thread of a rank that publishes its progress, reads the verdict, and ends a host that cannot raise it.

Each rank has one key in the job's store. Rank 0 reads all of them in one request and writes the verdict; while it is
silent, as in a call that keeps Python's lock, the first of the next ranks that is not does so.
"""

import atexit
import contextlib
import faulthandler
import json
import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from hpu_core import bridge
from hpu_core.distributed import _torch_2_0, progress, rendezvous, verdict
from hpu_core.distributed.errors import RankFailedError, describe_error, describe_exit, print_line
from hpu_core.distributed.launcher import LAUNCHED, launcher_pid
from hpu_core.distributed.verdict import Report, Verdict

_log = logging.getLogger(__name__)

_STDERR: Final = 2
_LOOK_INTERVAL: Final = 0.02
# Reports per second of all ranks, which rank 0 reads: see docs/records/scale.md.
_REPORT_RATE: Final = 1000
# Ranks that may stand in for rank 0, itself included.
_JUDGES: Final = 8
_VERDICT: Final = "verdict"


class Monitor:
    """Failure detection of one training on this rank.

    Attributes:
        job: The rendezvous.
        verdict: Why the job cannot continue; None while it can.
        is_off: Whether failure detection has failed.
        interval: Seconds between two reports.
    """

    def __init__(self, job: rendezvous.Job, host: progress.Progress) -> None:
        self.job, self._host, self._timeout = job, host, job.timeout.total_seconds()
        self.verdict: Verdict | None = None
        self.is_off = self._is_closed = self._has_warned = False
        self.interval = min(max(1.0, job.world_size / _REPORT_RATE), self._timeout / 20)
        # For a host to raise, for what cleans up after it, and for its process to exit.
        self._exit_period = min(max(5.0, 2 * self.interval), self._timeout / 6)
        self._limit = self._timeout - 3 * self._exit_period
        now = self._moved = self._beaten = self._judged = self._answered = time.monotonic()
        self._signs: object = None
        name = f"rank {job.rank} (pid {os.getpid()} on {socket.gethostname()})"
        self._report = Report(job.rank, name, host=job.rank - job.local_rank, beat=1)
        self._ranks = [Report(rank, f"rank {rank}") for rank in range(job.world_size)]
        self._seen = [now] * job.world_size
        self._lock, self._stop, self._pid = threading.RLock(), threading.Event(), os.getpid()
        # Connected by the first report.
        self._store: rendezvous.Store | None = None
        store = job.store(job.runs)
        # A store does not answer for what is not there, and other ranks may begin this training later.
        for rank in range(job.world_size) if job.rank == 0 else {0, self._report.host, job.rank}:
            _torch_2_0.set_first(store, _key(rank), self._ranks[rank].to_json())
        store.set(_key(job.rank), self._report.to_json())
        _torch_2_0.set_first(store, _VERDICT, json.dumps(None))
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
        while isinstance(error, RuntimeError) and not (self.verdict or self.is_off) and time.monotonic() < deadline:
            time.sleep(_LOOK_INTERVAL)
        if self.verdict is not None and self.verdict.rank != self.job.rank:
            raise RankFailedError(self.verdict.message) from error
        self._report.error = describe_error(error)
        print_line(f"[rank {self.job.rank}] failed: {self._report.error}")
        self._beat()

    def close(self) -> None:
        """Publish that this rank takes part in the training no more."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed, self._report.state = True, "left"
        self._beat()
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(self._exit_period)
        if self.verdict is None and self._report.error is None and not self.job.hosts_store:
            self.forget()

    def forget(self) -> None:
        """Do nothing at the end of the program."""
        atexit.unregister(self._at_exit)
        self._finalizer.cancel()

    def _at_exit(self) -> None:
        start = time.monotonic()
        if os.getpid() != self._pid:
            return
        if not self._is_closed:
            # Fabric has no hook for exceptions.
            error = getattr(sys, "last_value", None) or self._finish_device()
            try:
                if isinstance(error, BaseException):
                    self.fail(error)
            except RankFailedError as failure:
                print_line(f"[rank {self.job.rank}] aborting: {failure}")
        self.close()
        is_judged = self.verdict is not None
        if has_failed := is_judged or self._report.error is not None:
            self._report.state = "ended"
            self._beat()
        while self._is_needed(time.monotonic() - start, has_failed=has_failed, is_judged=is_judged):
            time.sleep(self.interval / 5)
            self._beat()
        if has_failed:
            for rank, process in LAUNCHED.items():
                if self._ranks[rank].state != "ended":
                    process.kill()
            # At exit the bridge waits for dead peers. This timer does not need Python's lock.
            devnull = os.open(os.devnull, os.O_WRONLY)
            faulthandler.dump_traceback_later(2 * self._exit_period, exit=True, file=devnull)

    def _finish_device(self) -> Exception | None:
        """Wait for the device, and return its error, if any.

        The bridge's exit would meet another rank's barrier, and then wait for a collective that this one misses.
        """
        if not bridge.is_open():
            return None
        self._host.wait, self._host.moves = progress.END_OF_PROGRAM, self._host.moves + 1
        try:
            # A verdict ends this process, which stands still.
            bridge.synchronize(lambda: None)
        except RuntimeError as error:
            return error
        return None

    def _is_needed(self, seconds: float, *, has_failed: bool, is_judged: bool) -> bool:
        """Return whether others need this process, some seconds after its end."""
        if self.is_off or seconds > 3 * self._exit_period:
            return False
        # The store closes with this process, and the others have yet to read why, or that all is well.
        is_read = seconds > (2 if has_failed else 6) * self.interval
        if self.job.hosts_store and not is_read and any(rank.is_active for rank in self._ranks):
            return True
        return has_failed and any(self._awaits(rank, is_judged=is_judged) for rank in self._around())

    def _awaits(self, rank: int, *, is_judged: bool) -> bool:
        """Return whether this process ends after the program of a rank around it, which may go on after the error."""
        state = self._ranks[rank].state
        if rank in LAUNCHED:
            # The bridge may wait there for this process; otherwise, it exits now.
            return state != "ended" or time.monotonic() - self._seen[rank] < self._exit_period
        # One that does not know of the error may be in a collective until this process ends.
        return state == "left" or (state == "training" and is_judged)

    def _watch(self) -> None:
        with self._guarded():
            self._beat()
            while not self._stop.wait(self.interval) and not self.is_off:
                self._beat()

    def _beat(self) -> None:
        """Publish, read and judge, and end what cannot end by itself."""
        with self._lock, self._guarded():
            now, key = time.monotonic(), _key(self.job.rank)
            if self.is_off:
                return
            if now - self._beaten > self._limit / 2:
                # The whole job was stopped, or its machine suspended.
                self._moved = self._answered = now
                self._seen = [now] * self.job.world_size
            self._beaten = now
            self._look(now)
            try:
                self._store = self._store or self.job.store(self.job.runs, connection=rendezvous.connect(self.job))
                self._store.set(key, self._report.to_json())
                self._read(self._store, now)
            except (OSError, RuntimeError):
                self._store = None
                self._judge_lost_store(now)
            if self.verdict is not None:
                self._kill_frozen(self.verdict, now)
                self._end_if_due(self.verdict, now)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Return a context in which an error ends failure detection, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a healthy training.
            self.is_off, self._report.state = True, "off"
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
        report.still, report.beat = now - self._moved, report.beat + 1
        if report.error is None:
            report.place, report.scope, report.waits, report.wait = host.place, host.scope, host.waits, host.wait
        report.line = host.line() if report.still > 2 * self.interval else ""
        codes = {rank: process.poll() for rank, process in LAUNCHED.items()}
        report.exits = {str(rank): describe_exit(code) for rank, code in codes.items() if code is not None}
        if launcher_pid() not in {None, os.getppid()}:
            report.exits[str(report.host)] = "its process has ended"
        report.stopped = [rank for rank, pid in self._around().items() if progress.is_stopped(pid)]

    def _read(self, store: rendezvous.Store, now: float) -> None:
        """Read the verdict; on rank 0, or while it is silent, all reports as well, and judge."""
        own, silence = self.job.rank, 5 * self.interval
        is_judge = own == 0 or (own < _JUDGES and now - self._seen[0] > silence)
        ranks = range(self.job.world_size) if is_judge else [*{0, *self._around()}]
        keys = [*map(_key, ranks), _VERDICT]
        *texts, written = _torch_2_0.get_many(store, keys)
        for rank, text in zip(ranks, texts, strict=True):
            report = Report(**json.loads(text))
            if report.beat != self._ranks[rank].beat:
                self._ranks[rank], self._seen[rank] = report, now
        self._answered = now
        if found := json.loads(written):
            self._set_verdict(Verdict(*found), now)
        elif is_judge and all(now - seen > silence for seen in self._seen[:own]):
            self._judge(store, now)

    def _judge(self, store: rendezvous.Store, now: float) -> None:
        """Write the verdict if there is a failure; before silence becomes one, warn once."""
        exits = {int(rank): reason for each in self._ranks for rank, reason in each.exits.items()}
        stopped = {rank for each in self._ranks for rank in each.stopped}
        for each, seen in zip(self._ranks, self._seen, strict=True):
            each.silent, each.exit, each.is_stopped = now - seen, exits.get(each.rank), each.rank in stopped
        if found := verdict.find_verdict(self._ranks, self._limit, 3 * self.interval):
            text = _torch_2_0.set_first(store, "first verdict", json.dumps(found))
            store.set(_VERDICT, text)
            self._set_verdict(Verdict(*json.loads(text)), now)
        elif not self._has_warned and (doubt := verdict.doubt(self._ranks, self._limit / 2)):
            self._has_warned = True
            _log.warning(doubt)

    def _judge_lost_store(self, now: float) -> None:
        """Judge rank 0 without its store: a refused connection shows its end, a lost network does not."""
        own, leader = self._report, self._ranks[0]
        closed = "its store closed" if rendezvous.is_refused(self.job) else None
        leader.silent, leader.exit = now - self._answered, own.exits.get("0", closed)
        found = verdict.find_verdict([leader, own], float("inf"), 3 * self.interval)
        may_wait = own.may_wait or own.place > leader.place
        if found is None and may_wait and min(own.still, leader.silent) > self._limit:
            found = Verdict(f"{leader.name} has not answered for {leader.silent:.0f} s", 0)
        if found is not None:
            self._set_verdict(found, now)

    def _set_verdict(self, found: Verdict, now: float) -> None:
        if self.verdict is None:
            self.verdict, self._judged = found, now

    def _end_if_due(self, found: Verdict, now: float) -> None:
        """End this process if its host cannot raise the verdict: it stands still, or works on for the timeout."""
        seconds = now - self._judged
        is_still = min(self._report.still, seconds) > self._exit_period and self._report.error is None
        if self._is_closed or not (is_still or seconds > self._timeout):
            return
        print_line(f"[rank {self.job.rank}] aborting: {found.message}")
        if found.rank == self.job.rank:
            faulthandler.dump_traceback(_STDERR)
        # A worker of a DataLoader may hang for the reason for which this process does.
        for process in multiprocessing.active_children():
            if process.daemon:
                process.kill()
        os._exit(1)

    def _kill_frozen(self, found: Verdict, now: float) -> None:
        """Kill the ranks around this one that run no Python, and so can neither raise the verdict nor exit."""
        for rank, pid in self._around().items():
            silent = now - max(self._seen[rank], self._judged)
            if self._store is not None and self._is_training(rank) and silent > 4 * self.interval:
                print_line(f"[rank {rank}] aborting: {found.message}. It runs no Python and is killed")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _is_training(self, rank: int) -> bool:
        return self._ranks[rank].state == "training"

    def _around(self) -> dict[int, int]:
        """Return the processes of the ranks that this one has launched, and of the one that has launched it."""
        around = {rank: process.pid for rank, process in LAUNCHED.items() if process.poll() is None}
        pid = launcher_pid()
        return around if pid != os.getppid() else {**around, self._report.host: pid}


def warn_off(rank: int, error: Exception) -> None:
    """Warn that failure detection has failed on a rank, which trains on."""
    _log.warning("failure detection is off on rank %d: %s", rank, describe_error(error))


def _key(rank: int) -> str:
    return f"report/{rank}"
