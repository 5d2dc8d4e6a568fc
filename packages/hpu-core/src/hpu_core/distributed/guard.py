"""Guard: a small process of each rank that takes over from the watchdog while the rank's threads stand still.

`torch.hpu.synchronize` keeps the GIL while it waits for the device, and so freezes the threads that would learn why it
waits in vain. The guard shares the clock's memory, publishes heartbeats in place of the rank, decides in place of rank
0, and kills its rank when the job cannot continue. It is a fork from before the device is opened: a fork of a process
with an open device could disturb its memory, so a rank that opens its device first has no guard.
"""

import contextlib
import gc
import os
import select
import signal
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Final

from hpu_core.distributed import cpp_log
from hpu_core.distributed.failure_detection import Heartbeat, RankFailure
from hpu_core.distributed.heartbeat_exchange import HeartbeatExchange
from hpu_core.distributed.step_clock import StepClock

_STDERR: Final = 2


def start_guard(exchange: HeartbeatExchange, clock: StepClock) -> int:
    """Fork the guard of this process, and return its process id; it ends with this process.

    Args:
        exchange: An exchange for it alone, not connected, that knows of no launched ranks.
        clock: The clock of this process.
    """
    rank = os.getpid()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads. The child uses no lock of this process but malloc's.
        warnings.simplefilter("ignore", DeprecationWarning)
        if pid := os.fork():
            return pid
    try:
        gc.disable()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) != _STDERR:
                # Also the store's socket, at which the guard of rank 0 would seem to listen.
                with contextlib.suppress(OSError):
                    os.close(int(entry.name))
        _Guard(exchange, clock, rank).run()
    finally:
        os._exit(0)


class _Guard:
    """The process's only thread."""

    def __init__(self, exchange: HeartbeatExchange, clock: StepClock, pid: int) -> None:
        self._exchange = exchange
        self._clock = clock
        self._pid = pid
        self._timeouts = exchange.timeouts
        self._beats = -1
        self._beat_at = 0.0
        self._heartbeat: Heartbeat | None = None
        self._failure: RankFailure | None = None
        self._failed_at = 0.0

    def run(self) -> None:
        """Watch until the rank has ended."""
        rank = os.pidfd_open(self._pid)
        while not select.select([rank], [], [], self._timeouts.heartbeat_interval)[0]:
            now = time.monotonic()
            if self._clock.beats != self._beats:
                self._beats, self._beat_at, self._heartbeat = self._clock.beats, now, None
            elif now - self._beat_at > self._timeouts.silence:
                self._stand_in(now)

    def _stand_in(self, now: float) -> None:
        """Exchange a heartbeat in place of the rank, and kill it if the job cannot continue."""
        if self._heartbeat is None:
            published = self._clock.published
            if published is None or not published.training:
                return
            self._heartbeat = published
            self._exchange.resume(now)
        beat = self._heartbeat
        self._heartbeat = beat = replace(beat, beat=beat.beat + 1, progress=self._clock.progress, is_frozen=True)
        try:
            with cpp_log.silence():
                self._exchange.update_exits()
                failure = self._exchange.exchange(beat, self._failure)
        except RuntimeError:
            stood_still = now - self._beat_at > self._timeouts.stall
            failure = self._failure or self._exchange.reconnect(lambda: beat)
            if failure is None and stood_still:
                failure = RankFailure(f"{self._exchange.own.info} has not run for {now - self._beat_at:.0f} s")
        if failure is None:
            return
        if self._failure is None:
            self._failure, self._failed_at = failure, now
            with contextlib.suppress(OSError):
                os.write(_STDERR, f"[rank {self._exchange.own.info.rank}] aborting: {failure.message}\n".encode())
        # Checked against what this process knows: a message alone ends no rank.
        hangs = failure.rank == self._exchange.own.info.rank and now - self._beat_at > self._timeouts.stall / 2
        if hangs or now - self._failed_at > self._timeouts.exit_grace:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
