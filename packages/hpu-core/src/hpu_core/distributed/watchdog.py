"""Watchdog: what a rank itself does for failure detection.

HCCL collectives never time out, so a collective that one rank does not enter blocks the devices of all others forever,
and their hosts where they next read. The rank records its place in memory that it shares with its guard, raises
`RankFailedError` at its next step or wait when the guard has found a failure, and exits when the guard orders it. One
thread records that Python runs, and the line where an idle host is.
"""
# hpu-doctor verify: barrier-never-times-out

import atexit
import contextlib
import faulthandler
import logging
import multiprocessing.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from hpu_core import bridge
from hpu_core.distributed.errors import RankFailedError, describe_error, print_line
from hpu_core.distributed.failure_detection import Heartbeat, RankFailure, Timeouts
from hpu_core.distributed.guard import WITH_STACKS, start_guard
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.step_clock import StepClock

_log = logging.getLogger(__name__)

_STDERR: Final = 2
# Seconds between two looks at the device, and at what the guard sends.
_DEVICE_INTERVAL: Final = 0.001
_LOOK_INTERVAL: Final = 0.01
# Attributes of an error: all ranks entered the same wait with it; it has waited for the failure of another rank.
# A reference would keep the frames of its traceback, and another error may have its id.
_COMMON: Final = "_hpu_is_common"
_CAUSE_CHECKED: Final = "_hpu_cause_checked"


class Watchdog:
    """Failure detection of this process, for all of its strategies in one process group.

    Args:
        job: The rendezvous.
        launched: The ranks that this process launched.
        clock: The clock of this process.
        detects: Whether to detect failures; else ranks only agree on signals.
        guard: Starts the guard, and returns its process id; 0 if it is a thread.

    Attributes:
        run: Number of the last training in this process group, the same on all ranks.
    """

    def __init__(
        self,
        job: RendezvousResult,
        launched: LaunchedRanks,
        clock: StepClock,
        *,
        detects: bool = True,
        guard: Callable[..., int] = start_guard,
    ) -> None:
        config = job.config
        self.job = job
        self.detects = detects
        self.clock = clock
        self._rank = config.rank
        self._launched = launched
        self._timeouts = Timeouts.from_timeout(config.timeout.total_seconds(), config.world_size)
        # The training thread and the one below change it.
        self._lock = threading.RLock()
        self._heartbeat = Heartbeat()
        self.run = 0
        self._users = 0
        self._pid = os.getpid()
        self._devnull = os.open(os.devnull, os.O_WRONLY)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_off = False
        self._guard = guard(job, clock, detects=detects)
        # atexit comes before what the bridge does at exit; a process of multiprocessing exits without atexit.
        atexit.register(self._at_exit)
        self._finalizer = multiprocessing.util.Finalize(None, self._at_exit, exitpriority=10)

    def open(self) -> None:
        """Begin a training, also if another strategy of this process has: ranks may collect that at different times."""
        self._users += 1
        # Number this run, so keys of the previous one are ignored. A rank that did not get as far as rank 0 catches up.
        leader = Heartbeat.from_json(self.job.store().get("heartbeat/0"))
        self.clock.reset()
        self.run = max(leader.run, self.run + 1)
        self._heartbeat = Heartbeat(run=self.run, training=True)
        self._post()
        if self._users > 1:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._pulse, args=(self._stop,), name="hpu-watchdog", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> RankFailure | None:
        """Why the job cannot continue; None while it can."""
        return self._from_guard.failure

    def raise_if_failed(self, cause: BaseException | None = None) -> None:
        """Raise a RankFailedError if the job cannot continue."""
        if (failure := self.failure) is not None:
            error = RankFailedError(failure.message)
            error.is_reported = not self.job.config.reports
            raise error from cause

    def raise_if_peer_failed(self, cause: BaseException | None = None) -> None:
        """Raise a RankFailedError if the job cannot continue, and not because of this rank."""
        if self.failure is not None and self.failure.rank != self._rank:
            self.raise_if_failed(cause)

    def step(self, name: str) -> AbstractContextManager[None]:
        """Return the context of a step, one of `failure_detection.SCOPES`.

        Raises:
            RankFailedError: The job cannot continue, which may be why the body failed.
        """
        return self._guarded(self.clock.scope(name))

    def wait(self, name: str) -> AbstractContextManager[None]:
        """Return the context of a call in which the host waits for all ranks, such as "barrier".

        Raises:
            RankFailedError: As in `step`.
        """
        return self._guarded(self.clock.wait(name))

    @contextlib.contextmanager
    def _guarded(self, context: AbstractContextManager[None]) -> Iterator[None]:
        """Return a context that enters another one, unless the job cannot continue.

        Raises:
            RankFailedError: It cannot, which may be why the body failed.
        """
        self.raise_if_failed()
        # Within the context: the guard looks whether a rank in a step waits for one that has left.
        with context:
            try:
                yield
            except BaseException as error:
                self._raise_cause(error)
                raise

    def confirm(self, error: BaseException, name: str) -> bool:
        """Return whether all ranks wait for each other next, in the same call, before which this one handles an error.

        What the program catches may have kept this rank alone from a step that the others are in. An error that all
        ranks handle is confirmed once, which takes as long as a few heartbeats.

        Raises:
            RankFailedError: Another rank has failed.
        """
        if vars(error).get(_COMMON) or self._is_off or not self.detects:
            return True
        self.clock.set_wait(name)
        self._post(pending_error=describe_error(error))
        try:
            self._wait_until(lambda: self._from_guard.common_wait == self.clock["waits"] + 1)
        finally:
            self._post(pending_error=None)
        self.raise_if_peer_failed()
        vars(error)[_COMMON] = self.failure is None
        return self.failure is None

    def wait_for_device(self) -> None:
        """Wait until the device has finished all work that the training thread has launched.

        The bridge's own `synchronize` keeps the GIL, and serves where the device has no events.

        Raises:
            RankFailedError: The job cannot continue.
        """
        if not self.clock.record():
            bridge.synchronize()
        while self.clock.progress.is_pending:
            self.raise_if_failed()
            time.sleep(_DEVICE_INTERVAL)
            self.clock.query_events()

    def notify_signal(self, signum: int) -> None:
        """Have all ranks handle a signal before the same batch. A signal handler may call this."""
        self.clock["signals"] |= 1 << signum
        self.clock.notify_guard()

    def signals_before_batch(self, batches: float | None = None) -> tuple[int, ...]:
        """Count a batch that is about to start; return the signals that all ranks handle before it.

        Returns at once unless some rank has received one. SIGTERM stands: a loop may ask again.

        Args:
            batches: Number of batches of the evaluation, infinite if unknown; None before a training batch.
        """
        taken, evaluated = self.clock.progress.taken
        taken, evaluated = (taken + 1, 0) if batches is None else (taken, evaluated + 1)
        batch: tuple[int, float] = taken, evaluated
        if self._from_guard.has_signals and batch >= self._from_guard.decision.batch:
            # All ranks wait here, or read which batch a rank has taken.
            self._post(waiting=batch, batches=batches or 0)
            self._wait_until(lambda: self._from_guard.decision.batch >= batch)
            self.raise_if_failed()
        decision = self._from_guard.decision
        signals = self.clock.signals if self._is_off else decision.signals if decision.batch == batch else ()
        self.clock["batches"], self.clock["evaluated"] = taken, evaluated
        for signum in {*signals} - {signal.SIGTERM}:
            self.clock["signals"] &= ~(1 << signum)
        if self._heartbeat.waiting or self._heartbeat.batches != (batches or 0):
            self._post(waiting=None, batches=batches or 0)
        return signals

    def end_epoch(self, batches: int) -> None:
        """Wait until all ranks have ended an epoch of training, or a rank would pair its next one with this one's rest.

        The ranks count in the store: a rank whose guard has died delays no other one.

        Args:
            batches: Number of batches that this rank had in the epoch.

        Raises:
            RankFailedError: Another rank goes on with the epoch, or has failed.
        """
        if not self.detects:
            return
        key, store, ranks = f"epochs/{self.run}", self.job.store(), self.job.config.world_size
        with self._guarded(contextlib.nullcontext()):
            self._post(epoch_batches=batches)
            try:
                last = -(-store.add(key, 1) // ranks) * ranks
                self._wait_until(lambda: store.add(key, 0) >= last, interval=self._timeouts.wait_interval / 5)
                self.raise_if_failed()
            finally:
                self._post(epoch_batches=0, epochs=self._heartbeat.epochs + 1)

    def report_failure(self, error: BaseException) -> None:
        """Publish that this rank cannot continue, unless another rank is the reason.

        Raises:
            RankFailedError: Another rank is.
        """
        self._raise_cause(error)
        # What is raised after the first error follows from it.
        if self._heartbeat.training and self._heartbeat.error is None and not isinstance(error, RankFailedError):
            self._post(error=describe_error(error))
            print_line(f"[rank {self._rank}] failed: {self._heartbeat.error}")
            self._flush()

    def _raise_cause(self, error: BaseException) -> None:
        """Raise the failure of another rank if one is known, which may be why this one fails as well.

        A collective may fail at once when a connection breaks, and the guard learns a moment later whose it was.
        """
        if isinstance(error, RankFailedError):
            return
        is_new = _CAUSE_CHECKED not in vars(error)
        vars(error)[_CAUSE_CHECKED] = True
        if isinstance(error, RuntimeError) and is_new and self.detects:
            self._wait_until(lambda: False, self._timeouts.detection_latency)
        self.raise_if_peer_failed(error)

    def close(self) -> None:
        """Publish that this rank trains no more, unless another strategy of this process does."""
        self._users -= 1
        if self._users > 0:
            return
        self._post(training=False)
        self._flush()
        if self.job.config.hosts_store:
            self._keep_store()
        self._stop.set()
        if self._thread is not threading.current_thread() and self._thread is not None:
            self._thread.join(self._timeouts.exit_period)

    def shutdown(self) -> None:
        """End the guard: another watchdog follows."""
        self._stop.set()
        self._is_off = True
        # A fork of this process has no guard of its own.
        if self._guard and os.getpid() == self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._guard, signal.SIGKILL)
                os.waitpid(self._guard, 0)
        atexit.unregister(self._at_exit)
        self._finalizer.cancel()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._users > 0:
            error = getattr(sys, "last_value", None)
            if isinstance(error, BaseException):
                # Fabric has no hook for exceptions.
                with contextlib.suppress(RankFailedError):
                    self.report_failure(error)
            self._users = 1
            self.close()
        if self.failure is not None:
            # The bridge destroys its process groups, which waits for dead peers. This timer does not need the GIL.
            faulthandler.dump_traceback_later(self._timeouts.exit_period, exit=True, file=self._devnull)

    @property
    def _from_guard(self) -> Heartbeat:
        """What the guard has sent in this training."""
        from_guard = self.clock.from_guard.read()
        return from_guard if from_guard.run == self.run else Heartbeat()

    def _post(self, **changes: object) -> None:
        """Change the heartbeat, and have the guard read it."""
        with self._lock:
            self._heartbeat = replace(self._heartbeat, **changes)  # type: ignore[arg-type] # Its fields.
            self.clock.from_rank.write(self._heartbeat)
        self.clock.notify_guard()

    def _pulse(self, stop: threading.Event) -> None:
        try:
            moves = -1
            while not stop.wait(self._timeouts.heartbeat_interval):
                self._look(is_idle=moves == self.clock["moves"])
                moves = self.clock["moves"]
        except Exception:  # noqa: BLE001 - whatever it is, it must not end a healthy run.
            self._is_off = True
            _log.warning("failure detection is off on rank %d", self._rank, exc_info=True)
            self.shutdown()

    def _look(self, *, is_idle: bool) -> None:
        """Record that Python runs, and the line of a host that has not moved since the last look."""
        call = line = None
        if is_idle:
            # The training thread queries them itself while it moves. Beside a host in `Event.synchronize`, that blocks.
            self.clock.query_events()
            call, line = self.clock.find_call()
        exits = {str(rank): reason for rank, reason in self._launched.exit_reasons().items()}
        if (call, line, exits) != (self._heartbeat.call, self._heartbeat.line, self._heartbeat.exits):
            self._post(call=call, line=line, exits=exits)
        self.clock.record_activity()
        if order := self.clock["order"]:
            try:
                if order == WITH_STACKS:
                    faulthandler.dump_traceback(_STDERR)
                # A worker of a DataLoader may hang for the reason for which this process does.
                for process in multiprocessing.active_children():
                    if process.daemon:
                        process.kill()
            finally:
                os._exit(1)
        if not self._is_off and self._guard and os.waitpid(self._guard, os.WNOHANG)[0]:
            self._is_off = True

    def _wait_until(
        self, is_so: Callable[[], bool], seconds: float | None = None, interval: float = _LOOK_INTERVAL
    ) -> None:
        """Wait until something is so, the job cannot continue, there is no guard, or the time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not (is_so() or self.failure is not None or self._is_off):
            if deadline is not None and time.monotonic() > deadline:
                return
            time.sleep(interval)

    def _flush(self) -> None:
        """Wait until the heartbeat is in the store."""
        version = self.clock.from_rank.version
        deadline = time.monotonic() + self._timeouts.detection_latency
        while self.clock["read"] < version and time.monotonic() < deadline and not self._is_off:
            time.sleep(_LOOK_INTERVAL)

    def _keep_store(self) -> None:
        """Wait until no other rank needs the store, which closes with this process."""
        if self._heartbeat.error is None:
            # Others may wait for this rank in vain.
            self._wait_until(self._has_no_peer, self._timeouts.detection_latency, self._timeouts.wait_interval)
        if self.failure is not None or self._heartbeat.error is not None:
            # They have yet to read of it.
            time.sleep(2 * self._timeouts.heartbeat_interval)

    def _has_no_peer(self) -> bool:
        """Return whether no other rank trains; have the guard read again, which it does once a heartbeat otherwise."""
        self.clock.notify_guard()
        return not self.clock["others"]
