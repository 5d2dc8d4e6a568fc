"""Exchange of heartbeats through the job's store: every rank publishes its own, and rank 0 reads all of them.

The heartbeat of rank 0 has the first failure and all decisions, so the others read that one only. They observe
rank 0, which cannot publish its own death, and the ranks that they launched.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from hpu_core.distributed.connections import peer_endpoints, shut_down
from hpu_core.distributed.failure_detection import (
    Heartbeat,
    RankFailure,
    RankState,
    SignalDecision,
    Timeouts,
    confirm_collective,
    decide_signals,
    detect_failure,
    detect_leader_failure,
)
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.store import is_refused, open_store

__all__ = ["HeartbeatExchange"]

_log = logging.getLogger(__name__)


class HeartbeatExchange:
    """Heartbeats of a job as one rank publishes and reads them, over a connection of its own.

    A client that waits for a key blocks every other user of the same connection.

    Args:
        job: The rendezvous that all ranks have joined.
        launched: The ranks that this process launched.

    Attributes:
        timeouts: Limits of failure detection.
        ranks: State of every rank, of which only this one's and those of `observed` are current.
        observed: State of the ranks whose heartbeats this one reads.
        leader: The last heartbeat that rank 0 published in this training.
        last_exchange_time: Monotonic time of the last exchange that succeeded.
    """

    def __init__(self, job: RendezvousResult, launched: LaunchedRanks) -> None:
        self._job = job
        self._rank = job.config.rank
        self._launched = launched
        self.timeouts = Timeouts.from_timeout(job.config.timeout.total_seconds())
        now = time.monotonic()
        self.ranks = [RankState(info, Heartbeat(training=True), now, now) for info in job.ranks]
        self.own = self.ranks[self._rank]
        observed = set(range(len(self.ranks))) if self._rank == 0 else {0, *launched}
        self.observed = [self.ranks[rank] for rank in sorted(observed - {self._rank})]
        self.leader = Heartbeat()
        self.last_exchange_time = now
        # Empty where the store is on another host: no connection of this host ends at its port there.
        peers = peer_endpoints(job.config.port)
        self._connected = [state for state in self.observed if not peers.isdisjoint(state.info.connections)]

    def connect(self, seconds: float | None = None, check: Callable[[], None] | None = None) -> None:
        """Connect to the store, with the timeout and the check of the rendezvous unless others are given.

        Raises:
            RankFailedError: Rank 0 is gone.
        """
        config, limit = self._job.config, self.timeouts.stall if seconds is None else seconds
        root = open_store(replace(config, timeout=timedelta(seconds=limit), check=check or config.check), server=False)
        root.set_timeout(timedelta(seconds=self.timeouts.stall))
        self._store = self._job.store(root)

    def read(self, rank: int) -> Heartbeat:
        """Return the last heartbeat of a rank; each rank publishes one before it joins."""
        record: dict[str, Any] = json.loads(self._store.get(f"heartbeat/{rank}"))
        failure, decision, confirmed, batch = map(record.pop, ("failure", "decision", "confirmed", "batch"))
        return Heartbeat(
            **record,
            failure=failure and RankFailure(**failure),
            # JSON has no tuples.
            batch=(batch[0], batch[1]),
            decision=SignalDecision(tuple(decision["batch"]), tuple(decision["signals"])),
            confirmed=confirmed and (confirmed[0], confirmed[1]),
        )

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
        if self._rank != 0:
            self._publish(own)
        for state in self.observed:
            heartbeat = self.read(state.info.rank)
            if heartbeat.run >= own.run:
                state.update(heartbeat, now)
                self._note_exits(heartbeat.exits)
                self.leader = heartbeat if state.info.rank == 0 else self.leader
        if self._rank == 0:
            heartbeats = [state.heartbeat for state in self.ranks]
            leader = replace(
                own,
                is_signalled=any(heartbeat.signals for heartbeat in heartbeats),
                decision=decide_signals(heartbeats, self.leader.decision) or self.leader.decision,
                confirmed=confirm_collective(heartbeats) or self.leader.confirmed,
            )
            self.own.heartbeat = leader
            leader.failure = failure = failure or detect_failure(self.ranks, now, self.timeouts)
            self._publish(leader)
            self.leader = leader
        else:
            failure = self.leader.failure or detect_leader_failure(self.ranks[0], self.own, now, self.timeouts)
        self.last_exchange_time = time.monotonic()
        return failure

    def reconnect(self, own: Callable[[], Heartbeat]) -> RankFailure | None:
        """Reconnect; a broken connection does not prove rank 0 dead. Return the failure if it is.

        Args:
            own: Returns the heartbeat of this rank, after the attempt.
        """
        leader, now = self.ranks[0], time.monotonic()
        if leader.exit_reason is None:
            try:
                self.connect(self.timeouts.silence, self._check_store)
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
        """Have an exchange that waits for the store fail: on a broken network, torch's client waits without a limit."""
        shut_down(self._job.config.port)

    def leader_failure(self, seconds: float) -> RankFailure:
        """Return the failure of rank 0, whose store has not answered for some seconds."""
        leader = self.ranks[0]
        if leader.exit_reason is not None:
            return RankFailure(f"{leader.info} exited{leader.where}: {leader.exit_reason}", 0, seconds)
        endpoint = self._job.config.endpoint
        return RankFailure(f"the store of {leader.info} at {endpoint} has not answered for {seconds:.0f} s", 0, seconds)

    def _publish(self, heartbeat: Heartbeat) -> None:
        self._store.set(f"heartbeat/{self._rank}", json.dumps(asdict(heartbeat)))

    def _note_exits(self, exits: Mapping[str, str]) -> None:
        for rank, reason in exits.items():
            self.ranks[int(rank)].exit_reason = reason

    def _check_store(self) -> None:
        """Raise a ConnectionRefusedError if the store is closed. torch's client retries, as if it were out of reach."""
        if is_refused(self._job.config):
            raise ConnectionRefusedError
