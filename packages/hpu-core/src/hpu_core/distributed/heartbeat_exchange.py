"""Exchange of heartbeats through the job's store: every rank publishes its own, and rank 0 reads all in one request.

The heartbeat of rank 0 has the first failure and all decisions. The others read it when a counter says that it has
news; the same counter shows them that rank 0 is alive. They observe rank 0, which cannot publish its own death, and the
ranks that they launched.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from hpu_core.distributed import _torch_2_0
from hpu_core.distributed.connections import peer_endpoints, shut_down
from hpu_core.distributed.failure_detection import (
    Heartbeat,
    RankFailure,
    RankInfo,
    RankState,
    Timeouts,
    confirm_wait,
    decide_signals,
    detect_failure,
    detect_leader_failure,
)
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.store import Store, is_refused, open_store

_log = logging.getLogger(__name__)

# Counter of rank 0: how often its heartbeat had news, times _NEWS, and how many heartbeats it sent.
_LEADER: Final = "leader"
_NEWS: Final = 1 << 32
# Fields of rank 0's heartbeat that no other rank needs at once.
_ROUTINE: Final = ("beat", "progress", "call", "line", "is_frozen", "batch", "evaluated", "is_waiting")


class HeartbeatExchange:
    """Heartbeats of a job as one rank publishes and reads them, over a connection of its own.

    A client that waits for a key blocks every other user of the same connection.

    Attributes:
        timeouts: Limits of failure detection; without it, ranks only agree on signals.
        ranks: State of the ranks that this one observes, and its own: all on rank 0; rank 0 and `launched` on others.
        leader: The last heartbeat that rank 0 published in this training.
        last_exchange_time: Monotonic time of the last exchange that succeeded.
    """

    def __init__(self, job: RendezvousResult, launched: LaunchedRanks, *, detects: bool = True) -> None:
        self._job = job
        self._detects = detects
        self._rank = job.config.rank
        self._launched = launched
        self.timeouts = Timeouts.from_timeout(job.config.timeout.total_seconds(), job.config.world_size)
        now = time.monotonic()
        host = job.ranks[self._rank].host
        infos = {rank: RankInfo(rank, host, process.pid) for rank, process in launched.items()} | dict(job.ranks)
        self.ranks = {rank: RankState(info, Heartbeat(training=True), now, now) for rank, info in infos.items()}
        self.own = self.ranks[self._rank]
        # What rank 0 last had to say, on rank 0; its counter, on the others.
        self._news: Heartbeat | None = None
        self._count = -1
        self.leader = Heartbeat()
        self.last_exchange_time = now
        self._connection: Store | None = None
        # Of another host's store, this one has no connection that ends at its port.
        peers = peer_endpoints(job.config.port) if job.ranks[0].host == host else set()
        self._connected = [
            state
            for rank, state in self.ranks.items()
            if rank != self._rank and not peers.isdisjoint(state.info.connections)
        ]

    def connect(self, seconds: float | None = None, check: Callable[[], None] | None = None) -> None:
        """Connect to the store, with the timeout and the check of the rendezvous unless others are given."""
        config, limit = self._job.config, self.timeouts.stall if seconds is None else seconds
        root = open_store(replace(config, timeout=timedelta(seconds=limit), check=check or config.check), server=False)
        root.set_timeout(timedelta(seconds=self.timeouts.stall))
        self._connection = self._job.store(root)

    @property
    def _store(self) -> Store:
        if self._connection is None:
            raise RuntimeError("there is no connection to the store yet")
        return self._connection

    def resume(self, now: float) -> None:
        """Connect in place of another process of this rank, as if all ranks had just made progress."""
        for state in self.ranks.values():
            state.last_heartbeat_time = state.last_progress_time = now
        try:
            # The checks of the rendezvous are of another process.
            self.connect(self.timeouts.silence, lambda: None)
            self.leader = self.read(0)[0]
        except RuntimeError:
            # The first exchange fails as well.
            _log.debug("rank %d found no store", self._rank, exc_info=True)

    def read(self, *ranks: int) -> list[Heartbeat]:
        """Return the last heartbeats of ranks; each rank publishes one before it joins."""
        return [Heartbeat.from_json(text) for text in _torch_2_0.get_many(self._store, [*map(_key, ranks)])]

    def update_exits(self) -> dict[str, str]:
        """Note which ranks are gone, and return why those that this process launched are.

        Call it before `exchange`: the last heartbeat of a rank that exited is in the store by then.
        """
        exits = {str(rank): reason for rank, reason in self._launched.exit_reasons().items()}
        self._note_exits(exits)
        # A broken connection alone proves nothing while heartbeats arrive.
        oldest = time.monotonic() - self.timeouts.silence
        silent = [state for state in self._connected if state.last_heartbeat_time < oldest]
        # The kernel searches all of its table, which takes milliseconds.
        peers = peer_endpoints(self._job.config.port) if silent else set()
        for state in silent:
            if peers.isdisjoint(state.info.connections):
                state.exit_reason = state.exit_reason or "its connections are closed"
        return exits

    def exchange(self, own: Heartbeat, failure: RankFailure | None) -> RankFailure | None:
        """Publish a heartbeat of this rank, read the others', and return the failure that follows, if any.

        Args:
            own: The heartbeat.
            failure: The failure that this rank knows of. The first one stays.

        Raises:
            RuntimeError: The connection is broken.
        """
        now = time.monotonic()
        self.own.update(own, now)
        failure = self._lead(own, failure, now) if self._rank == 0 else self._follow(own, now)
        self.last_exchange_time = time.monotonic()
        return failure

    def _lead(self, own: Heartbeat, failure: RankFailure | None, now: float) -> RankFailure | None:
        """Read all heartbeats, and publish what follows, if it is news."""
        self._observe(self.ranks.keys() - {0}, own.run, now)
        heartbeats = [state.heartbeat for state in self.ranks.values()]
        self.leader = self.own.heartbeat = replace(
            own,
            is_signalled=any(heartbeat.signals for heartbeat in heartbeats),
            decision=decide_signals(heartbeats, self.leader.decision) or self.leader.decision,
            confirmed=confirm_wait(heartbeats) or self.leader.confirmed,
        )
        if failure is None and self._detects:
            failure = detect_failure([*self.ranks.values()], now, self.timeouts)
        self.leader.failure = failure
        idle = Heartbeat()
        news = replace(self.leader, **{name: getattr(idle, name) for name in _ROUTINE})
        if news != self._news:
            self._publish(self.leader)
        self._store.add(_LEADER, 1 if news == self._news else 1 + _NEWS)
        self._news = news
        return failure

    def _follow(self, own: Heartbeat, now: float) -> RankFailure | None:
        """Publish the own heartbeat, and read what rank 0 has to say, if it is news."""
        self._publish(own)
        failure = self.leader.failure
        if failure is not None:
            # Rank 0 has no more to say, and others have yet to hear it.
            self._observe(self._launched, own.run, now)
            return failure
        count, leader = self._store.add(_LEADER, 0), self.ranks[0]
        has_news = count // _NEWS != self._count // _NEWS or leader.exit_reason is not None
        self._observe([*self._launched, 0] if has_news else self._launched, own.run, now)
        if count != self._count:
            leader.last_heartbeat_time = now
        self._count = count
        if self.leader.failure is None and self._detects:
            return detect_leader_failure(leader, self.own, now, self.timeouts)
        return self.leader.failure

    def _observe(self, ranks: Iterable[int], run: int, now: float) -> None:
        """Read the heartbeats of ranks, as far as they are of this training."""
        ranks = [*ranks]
        for rank, heartbeat in zip(ranks, self.read(*ranks), strict=True):
            if heartbeat.run >= run:
                self.ranks[rank].update(heartbeat, now)
                self._note_exits(heartbeat.exits)
                self.leader = heartbeat if rank == 0 else self.leader

    def reconnect(self, own: Callable[[], Heartbeat]) -> RankFailure | None:
        """Reconnect; a broken connection does not prove rank 0 dead. Return the failure if it is.

        `own` returns the heartbeat of this rank, after the attempt.
        """
        leader, now = self.ranks[0], time.monotonic()

        def check() -> None:
            # torch's client would retry, as if the store were out of reach.
            if is_refused(self._job.config):
                raise ConnectionRefusedError

        if leader.exit_reason is None:
            try:
                self.connect(self.timeouts.silence, check)
            except ConnectionRefusedError:
                leader.exit_reason = "its store closed"
            except RuntimeError:
                # Out of reach is not closed: the watchdog limits how long.
                _log.debug("rank %d found no store", self._rank, exc_info=True)
        # Whether rank 0 had finished is not known, so that only a rank that waits for it has a reason to fail.
        self.own.update(own(), now)
        waited = self.own.waiting_for(now)
        if leader.exit_reason is not None and waited > self.timeouts.heartbeat_interval:
            return self.leader_failure(waited)
        return None

    def disconnect(self) -> None:
        """Have an exchange that waits for the store fail: torch's client waits without a limit on a broken network."""
        shut_down(self._job.config.port)

    def leader_failure(self, seconds: float) -> RankFailure:
        """Return the failure of rank 0, whose store has not answered for some seconds."""
        leader = self.ranks[0]
        if leader.exit_reason is not None:
            return RankFailure(f"{leader.info} exited{leader.where}: {leader.exit_reason}", 0)
        endpoint = self._job.config.endpoint
        return RankFailure(f"the store of {leader.info} at {endpoint} has not answered for {seconds:.0f} s", 0)

    def _publish(self, heartbeat: Heartbeat) -> None:
        self._store.set(_key(self._rank), heartbeat.to_json())

    def _note_exits(self, exits: Mapping[str, str]) -> None:
        for rank, reason in exits.items():
            if (state := self.ranks.get(int(rank))) is not None:
                state.exit_reason = reason


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"
