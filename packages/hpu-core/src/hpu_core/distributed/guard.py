"""Guard: a process of each rank that exchanges heartbeats with the other ranks' guards, and ends its rank.

`torch.hpu.synchronize` keeps Python's lock while it waits for the device, so no thread of the rank could learn why it
waits in vain. The guard is a fork, as the workers of a DataLoader are: it uses no device, and the rank's memory but for
what they share. Every guard publishes its rank's heartbeat in the job's store. That of rank 0 reads all in one request;
its heartbeat has the first failure and all decisions, and the others read it when a counter shows that it has news.
"""

import contextlib
import gc
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch

from hpu_core.distributed import _torch_2_0
from hpu_core.distributed.errors import describe_error
from hpu_core.distributed.failure_detection import (
    FROZEN,
    STOPPED,
    Heartbeat,
    RankFailure,
    RankState,
    Timeouts,
    decide_signals,
    detect_failure,
    detect_leader_failure,
    find_common_wait,
)
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.step_clock import StepClock
from hpu_core.distributed.store import Store, is_refused, open_store

QUIET: Final = 1
"""Order to the rank to exit."""
WITH_STACKS: Final = 2
"""Order to the rank to print the stacks of its threads, and exit."""

_STDERR: Final = 2
# Counter of rank 0: how often its heartbeat had news, times _NEWS, and how many heartbeats it sent.
_LEADER: Final = "news"
_NEWS: Final = 1 << 32
# Fields of rank 0's heartbeat that no other rank needs at once.
_OWN_FIELDS: Final = ("sequence", "progress", "call", "line", "frozen", "waiting", "batches", "exits")
_EXITED: Final = "its process has ended"
# Seconds that the last exchange of a rank may take on a broken network.
_LAST_EXCHANGE: Final = 5


def start_guard(job: RendezvousResult, clock: StepClock, *, detects: bool) -> int:
    """Fork the guard of this process, and return its process id; it ends with this process."""
    guard = Guard(job, clock, os.getpid(), detects=detects)
    # Before the fork, which may run when this process has ended.
    guard.process = os.pidfd_open(os.getpid())
    with warnings.catch_warnings():
        # Python warns of a fork beside threads. The child uses no lock of this process but malloc's.
        warnings.simplefilter("ignore", DeprecationWarning)
        if pid := os.fork():
            os.close(guard.process)
            return pid
    try:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) not in {_STDERR, clock.wakeup_reader, guard.process}:
                # Also the store's socket, at which the guard of rank 0 would seem to listen.
                with contextlib.suppress(OSError):
                    os.close(int(entry.name))
        # What torch's store prints of a broken connection goes nowhere.
        guard.errors = os.dup(_STDERR)
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
        _free_tensors()
        guard.run()
    finally:
        os._exit(0)


def _free_tensors() -> None:
    """Free the tensors of a fork, which would keep the memory of those that its rank frees."""
    gc.disable()
    for tensor in gc.get_objects():
        if type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.device.type == "cpu":
            # Not of memory that torch does not own.
            with contextlib.suppress(RuntimeError):
                tensor.untyped_storage().resize_(0)


class Guard:
    """Guard of one rank.

    Args:
        job: The rendezvous of the rank.
        clock: Its clock.
        pid: Its process.
        detects: Whether to detect failures; else the ranks only agree on signals.

    Attributes:
        process: Descriptor of the process, which is readable once that has ended.
        errors: Descriptor for messages.
        ranks: All ranks on rank 0; rank 0 and this one on the others.
        failure: Why the job cannot continue, as far as this guard knows.
    """

    process: int
    errors = _STDERR

    def __init__(self, job: RendezvousResult, clock: StepClock, pid: int, *, detects: bool = True) -> None:
        self._job, self._clock, self._pid, self._detects = job, clock, pid, detects
        self._rank = job.config.rank
        self._timeouts = Timeouts.from_timeout(job.config.timeout.total_seconds(), job.config.world_size)
        now = time.monotonic()
        self.ranks = {rank: RankState(rank, name, Heartbeat(), now, now) for rank, name in job.ranks.items()}
        self._own = self.ranks[self._rank]
        self._store: Store | None = None
        self._is_lost = False
        self._run = 0
        self._has_exited = False
        self._error: Exception | None = None
        self._wakeup = threading.Event()
        self._begin(now)

    def _begin(self, now: float) -> None:
        """Forget what was before this training."""
        self._resume(now)
        for state in self.ranks.values():
            state.heartbeat, state.exit_reason = Heartbeat(training=True), None
        self.failure: RankFailure | None = None
        self._failed_at = self._ordered_at = 0.0
        self._leader = Heartbeat()
        # What rank 0 published last, on rank 0; its counter, on the others.
        self._news: Heartbeat | None = None
        self._count = -1
        # What the rank did when its time was limited, and since when.
        self._limited: tuple[object, float] = (None, now)

    def _resume(self, now: float) -> None:
        """Measure all times from now on."""
        for state in self.ranks.values():
            state.last_heartbeat_time = state.last_progress_time = now
        self._activity = (-1, now)
        self._checked_at = now

    def run(self) -> None:
        """Watch until the rank has ended."""
        exchange = threading.Thread(target=self._exchange_forever, daemon=True)
        exchange.start()
        # `select` takes no descriptors from 1024 on, and the program may have as many open files.
        poll = select.poll()
        poll.register(self.process, select.POLLIN)
        poll.register(self._clock.wakeup_reader, select.POLLIN)
        try:
            while self._error is None:
                ready = {descriptor for descriptor, _ in poll.poll(1000 * self._timeouts.heartbeat_interval)}
                if self.process in ready:
                    break
                if ready:
                    os.read(self._clock.wakeup_reader, 1 << 10)
                    self._wakeup.set()
                self._watch(time.monotonic())
        except Exception as error:  # noqa: BLE001 - as of the other thread.
            self._error = error
        os.close(self.process)
        if self._error is not None:
            self._print(f"failure detection is off on rank {self._rank}: {describe_error(self._error)}")
            return
        self._has_exited = True
        self._wakeup.set()
        if self._clock.from_rank.read().training:
            # A rank that has left has published that.
            exchange.join(_LAST_EXCHANGE)

    def _watch(self, now: float) -> None:
        """Limit how long the rank may take without an answer of rank 0, or after a failure."""
        if now - self._checked_at > self._timeouts.progress_limit / 2:
            # The machine was suspended, or the whole job stopped.
            self._resume(now)
        self._checked_at = now
        from_rank = self._clock.from_rank.read()
        if from_rank.run != self._run:
            # The other thread begins with a training, for it may be reading the heartbeats of the last one.
            return
        self._observe_own(from_rank, now)
        leader, own = self.ranks[0], self._own
        seconds = now - leader.last_heartbeat_time
        # As long as rank 0 answers, it is the one to name the rank at fault.
        if min(seconds, own.waiting_for(now)) >= self._timeouts.progress_limit:
            message = f"{leader.name} has sent no heartbeat for {seconds:.0f} s; {own.name} waits for it{own.where}"
            self._set_failure(RankFailure(message, 0), is_local=True)
        if not self._ordered_at and (order := self._order(now)):
            self._ordered_at, self._clock["order"] = now, order
        is_expired = own.heartbeat.frozen is not None or now - self._ordered_at > self._timeouts.heartbeat_timeout
        if self._ordered_at and is_expired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _order(self, now: float) -> int:
        """Return the order to a rank whose time is over, and 0 to any other.

        A host that its device, or a call, blocks has the exit period, as long as Python does not run there: a callback
        may write a file while the device waits. One that works for itself has the timeout.
        """
        period, own = self._timeouts.exit_period, self._own
        heartbeat, seconds = own.heartbeat, now - self._failed_at
        if self.failure is None or not heartbeat.training or heartbeat.error is not None:
            return 0
        if self.failure.rank == self._rank:
            # Checked against what this process knows: a message alone ends no rank. The others have yet to read it.
            limit = self._timeouts.progress_limit / 2
            is_idle = heartbeat.pending_error is None and now - own.last_progress_time > limit
            return WITH_STACKS if is_idle and seconds > self._timeouts.heartbeat_timeout else 0
        is_blocked = own.is_blocked or own.is_in_step
        activity = (is_blocked, heartbeat.progress.moves, self._clock["instruction"]) if is_blocked else None
        if activity != self._limited[0]:
            self._limited = activity, now
        is_expired = is_blocked and now - self._limited[1] > period
        if not is_expired and seconds <= self._job.config.timeout.total_seconds() - period:
            return 0
        is_known = self.failure.rank is not None or not self._job.config.reports
        return QUIET if is_known else WITH_STACKS

    def _observe_own(self, from_rank: Heartbeat, now: float) -> Heartbeat:
        """Return the heartbeat of the rank, a part of which is `from_rank`."""
        activity = self._clock["activity"]
        if activity != self._activity[0]:
            self._activity = activity, now
        frozen = None
        if from_rank.training and activity > 0 and now - self._activity[1] > self._timeouts.heartbeat_timeout:
            frozen = STOPPED if _is_stopped(self._pid) else FROZEN
        heartbeat = replace(
            from_rank,
            sequence=self._own.heartbeat.sequence + 1,
            progress=self._clock.progress,
            signals=self._clock.signals,
            frozen=frozen,
            exited=self._has_exited,
        )
        if self._has_exited:
            self._own.exit_reason = _EXITED
        self._own.update(heartbeat, now)
        return heartbeat

    def _exchange_forever(self) -> None:
        try:
            while True:
                is_last = self._has_exited
                self.exchange(is_last=is_last)
                if is_last:
                    return
                heartbeat = self._own.heartbeat
                waits = self._leader.has_signals or heartbeat.waiting is not None or heartbeat.pending_error is not None
                is_waiting = waits and self.failure is None
                self._wakeup.wait(self._timeouts.wait_interval if is_waiting else self._timeouts.heartbeat_interval)
                self._wakeup.clear()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a healthy run.
            self._error = error

    def exchange(self, *, is_last: bool = False) -> None:
        """Publish the rank's heartbeat, read the others', and send the rank what follows."""
        version, now, from_rank = self._clock.from_rank.version, time.monotonic(), self._clock.from_rank.read()
        if from_rank.run == 0:
            # What an earlier guard of the rank has published stays until then: a training is numbered by it.
            return
        if from_rank.run != self._run:
            self._run = from_rank.run
            self._begin(now)
        heartbeat = self._observe_own(from_rank, now)
        try:
            if self._is_lost and is_last:
                return
            if self._store is None:
                limit = timedelta(seconds=self._timeouts.heartbeat_timeout)
                config = replace(self._job.config, timeout=limit, check=lambda: None)
                self._store, self._is_lost = self._job.store(open_store(config, server=False)), False
            exchange = self._exchange_with_all if self._rank == 0 else self._exchange_with_leader
            failure = exchange(self._store, heartbeat)
            self._clock["read"] = version
        except RuntimeError:
            self._store, self._is_lost = None, True
            # The store closes some seconds after a failure.
            failure = None if is_last else self._leader.failure or self._closed_store()
        self._set_failure(failure)
        # A rank may be in the next training already.
        here = [state for state in self.ranks.values() if state.heartbeat.run <= heartbeat.run and not state.has_left]
        self._clock["others"] = sum(state is not self._own for state in here)
        self._clock.from_guard.write(replace(self._leader, run=heartbeat.run, failure=self.failure))

    def _exchange_with_all(self, store: Store, own: Heartbeat) -> RankFailure | None:
        """Read all heartbeats, and publish what follows, if it is news."""
        now = time.monotonic()
        self._read(store, self.ranks.keys() - {0}, own.run, now)
        heartbeats = [state.heartbeat for state in self.ranks.values()]
        self._leader = replace(
            own,
            has_signals=any(heartbeat.signals for heartbeat in heartbeats),
            decision=decide_signals(heartbeats, self._leader.decision) or self._leader.decision,
            common_wait=find_common_wait(heartbeats) or self._leader.common_wait,
            failure=self.failure,
        )
        if self._detects and self.failure is None:
            leader = replace(self._own, heartbeat=self._leader)
            states = [leader if state is self._own else state for state in self.ranks.values()]
            self._leader.failure = detect_failure(states, now, self._timeouts)
        idle = Heartbeat()
        news = replace(self._leader, **{name: getattr(idle, name) for name in _OWN_FIELDS})
        if news != self._news:
            store.set(_key(0), self._leader.to_json())
        store.add(_LEADER, 1 if news == self._news else 1 + _NEWS)
        self._news = news
        return self._leader.failure

    def _exchange_with_leader(self, store: Store, own: Heartbeat) -> RankFailure | None:
        """Publish the own heartbeat, and read that of rank 0, if it has news."""
        now, leader = time.monotonic(), self.ranks[0]
        store.set(_key(self._rank), own.to_json())
        count = store.add(_LEADER, 0)
        if count // _NEWS != self._count // _NEWS:
            self._read(store, [0], own.run, now)
        if count != self._count:
            leader.last_heartbeat_time = now
        self._count = count
        if self._leader.failure is None and self._detects:
            return detect_leader_failure(leader, self._own, now, self._timeouts)
        return self._leader.failure

    def _read(self, store: Store, ranks: Iterable[int], run: int, now: float) -> None:
        """Read the heartbeats of ranks, as far as they are of this training."""
        ranks = [*ranks]
        texts = _torch_2_0.get_many(store, [*map(_key, ranks)])
        for rank, heartbeat in zip(ranks, map(Heartbeat.from_json, texts), strict=True):
            state = self.ranks[rank]
            if heartbeat.run < run:
                continue
            state.update(heartbeat, now)
            if rank == 0:
                self._leader = heartbeat
        exits = {number: why for state in self.ranks.values() for number, why in state.heartbeat.exits.items()}
        for rank in ranks:
            state = self.ranks[rank]
            is_inactive = now - state.last_heartbeat_time > self._timeouts.heartbeat_timeout
            # It may have finished, and its last heartbeat may come later than its exit code.
            if state.heartbeat.exited or is_inactive:
                # Its launcher knows why, if it is ours.
                reason = exits.get(str(rank)) or (_EXITED if state.heartbeat.exited and is_inactive else None)
                state.exit_reason = reason or state.exit_reason

    def _closed_store(self) -> RankFailure | None:
        """Return the failure of rank 0 if its store is closed; a broken connection does not prove it."""
        leader = self.ranks[0]
        if leader.exit_reason is None and is_refused(self._job.config):
            leader.exit_reason = "its store closed"
        return detect_leader_failure(leader, self._own, time.monotonic(), self._timeouts)

    def _set_failure(self, failure: RankFailure | None, *, is_local: bool = False) -> None:
        """Take over the first failure, and print it unless the rank itself does."""
        if failure is None or self.failure is not None or not self._detects:
            return
        self.failure, self._failed_at, heartbeat = failure, time.monotonic(), self._own.heartbeat
        is_printed = is_local or self._job.config.reports or failure.rank == self._rank
        if is_printed and heartbeat.training and heartbeat.error is None and not heartbeat.exited:
            self._print(f"[rank {self._rank}] aborting: {failure.message}")

    def _print(self, message: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.errors, f"{message}\n".encode())


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        # The name before the state may have spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    return False


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"
