"""Exchange of heartbeats through the job's store: every rank publishes its own, and rank 0 reads all of them.

Rank 0 also publishes the first failure and the decision to stop, which the others read. These observe rank 0 and the
ranks that they launched, because rank 0 cannot publish its own death.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from hpu_core.distributed.connections import peer_endpoints
from hpu_core.distributed.failure_detection import (
    Heartbeat,
    RankFailure,
    RankState,
    StopDecision,
    Timeouts,
    decide_stop,
    describe_exit,
    detect_failure,
    detect_leader_failure,
)
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.store import invalid_entry, is_refused, open_store, publish, try_get

__all__ = ["HeartbeatExchange", "LeaderRecord"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """What rank 0 publishes for all ranks.

    Attributes:
        run: Number of the training, as in `Heartbeat`.
        failure: Why the job cannot continue; None while it can.
        stopping: Whether a rank received SIGTERM, so that all ranks wait for a decision before every batch.
        decision: The last decision.
    """

    run: int = 0
    failure: RankFailure | None = None
    stopping: bool = False
    decision: StopDecision = field(default_factory=StopDecision)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "LeaderRecord":
        """Return the record that `dataclasses.asdict` made a dictionary of."""
        failure, decision = record["failure"], StopDecision(**record["decision"])
        return cls(record["run"], failure and RankFailure(**failure), record["stopping"], decision)


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
        leader_record: The last that rank 0 published in this training.
        last_exchange_time: Monotonic time of the last exchange that succeeded.
    """

    def __init__(self, job: RendezvousResult, launched: LaunchedRanks) -> None:
        self._job = job
        self._rank = job.config.rank
        self._own_key = f"heartbeat/{self._rank}"
        self._launched = launched
        self.timeouts = Timeouts.from_timeout(job.config.timeout.total_seconds())
        now = time.monotonic()
        self.ranks = [RankState(info, Heartbeat(training=True), now, now) for info in job.ranks]
        self.observed = [
            state
            for state in self.ranks
            if state.info.rank != self._rank
            and (self._rank == 0 or state.info.rank == 0 or state.info.rank in launched.ranks())
        ]
        self.leader_record = LeaderRecord()
        self.last_exchange_time = now
        self._connected: set[int] = set()
        self._is_store_remote = False

    @property
    def own(self) -> RankState:
        """State of this rank."""
        return self.ranks[self._rank]

    def connect(self, seconds: float | None = None, check: Callable[[], None] | None = None) -> None:
        """Connect to the store.

        Args:
            seconds: How long to try; as long as a rank may wait in a collective when None.
            check: Raises when it makes no sense to wait any longer; that of the rendezvous when None.

        Raises:
            RankFailedError: Rank 0 is gone.
        """
        limit = self.timeouts.stall if seconds is None else seconds
        config = self._job.config
        root = open_store(replace(config, timeout=timedelta(seconds=limit), check=check or config.check), server=False)
        root.set_timeout(timedelta(seconds=self.timeouts.stall))
        self._store = self._job.store(root)

    def register(self, own: Heartbeat) -> None:
        """Publish the first heartbeat of this rank in a training."""
        publish(self._store, self._own_key, asdict(own))

    def leader_run(self) -> int:
        """Return the number of the training that rank 0 is in; 0 before the first.

        Raises:
            ValueError: Something else than this version of hpu-core wrote to the store.
        """
        entry = try_get(self._store, "leader")
        run = entry[1].get("run") if entry is not None else 0
        if not isinstance(run, int):
            raise invalid_entry("leader", entry)
        return run

    def update_exits(self) -> dict[str, str]:
        """Note which ranks are gone, and return why those that this process launched are.

        Call it before `exchange`: the last heartbeat of a rank that exited is in the store by then.
        """
        exits = {rank: describe_exit(code) for rank, code in self._launched.exit_codes().items()}
        for rank, reason in exits.items():
            self.ranks[rank].exit_reason = reason
        self._update_connections(time.monotonic())
        return {str(rank): reason for rank, reason in exits.items()}

    def exchange(self, own: Heartbeat, failure: RankFailure | None) -> RankFailure | None:
        """Publish a heartbeat of this rank, read the others', and return the failure that follows, if any.

        Args:
            own: The heartbeat.
            failure: The failure that this rank knows of, which stays the first one.

        Raises:
            RuntimeError: The connection is broken.
        """
        now = time.monotonic()
        self.own.update(own, now)
        # `register` has counted it, and counting takes a round trip.
        self._store.set(self._own_key, json.dumps(asdict(own)))
        for state in self.observed:
            entry = try_get(self._store, f"heartbeat/{state.info.rank}")
            if entry is not None and entry[1]["run"] >= own.run:
                state.update(Heartbeat(**entry[1]), now)
                for rank, reason in state.heartbeat.exits.items():
                    self.ranks[int(rank)].exit_reason = reason
        failure = self._publish_record(failure, now) if self._rank == 0 else self._read_record(now)
        self.last_exchange_time = time.monotonic()
        return failure

    def reconnect(self, own: Callable[[], Heartbeat]) -> RankFailure | None:
        """Connect anew, as a broken connection is no proof that rank 0 is gone; return the failure where it is.

        Args:
            own: Returns the heartbeat of this rank after the attempt.
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

    def leader_failure(self, seconds: float) -> RankFailure:
        """Return the failure of rank 0, whose store has not answered for some seconds."""
        leader = self.ranks[0]
        if leader.exit_reason is not None:
            return RankFailure(f"{leader.info} exited{leader.where}: {leader.exit_reason}", 0, seconds)
        endpoint = self._job.config.endpoint
        return RankFailure(f"the store of {leader.info} at {endpoint} has not answered for {seconds:.0f} s", 0, seconds)

    def _publish_record(self, failure: RankFailure | None, now: float) -> RankFailure | None:
        """Publish the record of rank 0, which this is."""
        failure = failure or detect_failure(self.ranks, now, self.timeouts)
        latest = [state.heartbeat for state in self.ranks]
        stopping = any(heartbeat.stop_requested for heartbeat in latest)
        last = self.leader_record.decision
        decision = (decide_stop(latest, last) if stopping else None) or last
        record = LeaderRecord(latest[0].run, failure, stopping, decision)
        publish(self._store, "leader", asdict(record))
        self.leader_record = record
        return failure

    def _read_record(self, now: float) -> RankFailure | None:
        """Read the record of rank 0, and watch rank 0 itself."""
        entry = try_get(self._store, "leader")
        if entry is not None and entry[1]["run"] >= self.own.heartbeat.run:
            self.leader_record = LeaderRecord.from_json(entry[1])
        return self.leader_record.failure or detect_leader_failure(self.ranks[0], self.own, now, self.timeouts)

    def _check_store(self) -> None:
        """Raise a ConnectionRefusedError if the store is closed. torch's client retries, as if it were out of reach."""
        if is_refused(self._job.config):
            raise ConnectionRefusedError

    def _update_connections(self, now: float) -> None:
        """Note which other ranks are connected to the store of this host, and which of them are no longer."""
        connected, silence = self._connected, self.timeouts.silence
        new = [s for s in self.observed if s.heartbeat.connections and s.info.rank not in connected]
        # A broken connection alone proves nothing while heartbeats arrive.
        silent = [s for s in self.observed if s.info.rank in connected and now - s.last_heartbeat_time > silence]
        # The kernel searches all of its table, which takes milliseconds.
        if not silent and (self._is_store_remote or not new):
            return
        peers = peer_endpoints(self._job.config.port)
        self._is_store_remote = not peers
        connected.update(state.info.rank for state in new if not peers.isdisjoint(state.heartbeat.connections))
        for state in silent:
            if peers.isdisjoint(state.heartbeat.connections):
                state.exit_reason = state.exit_reason or "its connections are closed"
