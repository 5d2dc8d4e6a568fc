"""Failure detection: pure functions from the ranks' last heartbeats to the failure, if any.

Each rank counts the collectives that it has entered. Ranks of one job are at most a few collectives apart, so the rank
that is behind and no longer advances is the one that the others wait for. Nothing here waits, connects or exits.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_MAX_ERROR_LENGTH = 2000
_MAX_PLACES = 8
# Heartbeats in a second, of all ranks, and those while ranks wait for them. On one core of 2026, one takes the process
# of rank 0 about 20 microseconds in the store, and as long to read: see docs/records/scale.md.
_HEARTBEAT_RATE = 1400
_WAIT_RATE = 2560
_WAIT_INTERVAL = 0.05


class RankFailedError(RuntimeError):
    """Another rank of the job died, failed, exited early or hangs; the message names it.

    Attributes:
        is_reported: Whether other ranks print it, so that this one does not.
    """

    is_reported = False


@dataclass(frozen=True, slots=True)
class RankInfo:
    """Identity of one rank.

    Attributes:
        rank: Global rank.
        host: Host name.
        pid: Process id on that host.
        connections: Local endpoints, "address:port", of its first connections to the store.
    """

    rank: int
    host: str
    pid: int
    connections: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"


@dataclass(frozen=True, slots=True)
class RankFailure:
    """Why the job cannot continue.

    Attributes:
        message: One sentence that names rank, host and cause.
        rank: The failed rank; None if no single rank is at fault.
    """

    message: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class SignalDecision:
    """Signals that all ranks handle before the same batch; they take all earlier ones.

    Attributes:
        batch: The batch, as in `Heartbeat`; zeros while nothing is decided.
        signals: Their numbers; empty if the ranks take this batch, too.
    """

    batch: tuple[int, float] = (0, 0)
    signals: tuple[int, ...] = ()


@dataclass(slots=True)
class Heartbeat:
    """Progress of one rank, published at every interval.

    Attributes:
        run: Number of the training that the rank is in; a process may train several times in one process group.
        beat: Number of heartbeats published so far.
        collective_seq: Number of collectives entered, failed ones excluded.
        collective: Name of the collective the rank is in, such as "backward"; None between two.
        training: Whether the rank is between `on_training_start` and `on_training_end`.
        error: Exception that ended training on this rank; None while there is none.
        handled: Exception that the program handles, so that the rank waits to enter its collective; None if none.
        signals: Signals that the rank received, for all ranks to handle.
        batch: Numbers of the training batch that the rank is in, or waits before, and of the batch of the evaluation
            after it; 0 in training.
        evaluated: Number of batches of that evaluation on this rank; infinite if unknown.
        is_waiting: Whether the rank waits for a `SignalDecision` before its batch.
        closed: Whether the rank has left the job without an error.
        exits: Ranks that this rank launched and that have exited, and why, such as "killed by signal 9".
        failure: Rank 0 only: why the job cannot continue; None while it can.
        is_signalled: Rank 0 only: whether a rank received a signal, so that all wait for a decision before each batch.
        decision: Rank 0 only: the last decision.
        confirmed: Rank 0 only: number and name of the last collective that all ranks enter while one handles an error.
    """

    run: int = 0
    beat: int = 0
    collective_seq: int = 0
    collective: str | None = None
    training: bool = False
    error: str | None = None
    handled: str | None = None
    signals: list[int] = field(default_factory=list)  # Its methods are atomic: a signal handler appends.
    batch: tuple[int, float] = (0, 0)
    evaluated: float = 0
    is_waiting: bool = False
    closed: bool = False
    exits: dict[str, str] = field(default_factory=dict)  # JSON has no other keys.
    failure: RankFailure | None = None
    is_signalled: bool = False
    decision: SignalDecision = SignalDecision()
    confirmed: tuple[int, str] | None = None

    def to_json(self) -> str:
        """Return what differs from a new heartbeat; of thousands of ranks, all else would be most of what is read."""
        return json.dumps({name: value for name, value in asdict(self).items() if value != _NEW[name]})

    @classmethod
    def from_json(cls, text: bytes) -> "Heartbeat":
        """Return the heartbeat that `to_json` wrote."""
        record: dict[str, Any] = json.loads(text)
        if failure := record.get("failure"):
            record["failure"] = RankFailure(**failure)
        if decision := record.get("decision"):
            record["decision"] = SignalDecision(tuple(decision["batch"]), tuple(decision["signals"]))
        # JSON has no tuples.
        record.update({name: tuple(record[name]) for name in ("batch", "confirmed") if record.get(name)})
        return cls(**record)

    @property
    def place(self) -> tuple[int, str | None]:
        """Number and name of the collective that the rank is in, or waits to enter."""
        return self.collective_seq, self.collective


_NEW = asdict(Heartbeat())


@dataclass(slots=True)
class RankState:
    """One rank as seen by another; times are seconds of a monotonic clock of the observer.

    Attributes:
        info: Identity of the rank.
        heartbeat: Its last heartbeat.
        last_progress_time: When its collective or its number of collectives last changed.
        last_heartbeat_time: When its last heartbeat arrived.
        exit_reason: Why its process is known to be gone, such as "killed by signal 9"; None while it runs.
    """

    info: RankInfo
    heartbeat: Heartbeat
    last_progress_time: float
    last_heartbeat_time: float
    exit_reason: str | None = None

    def update(self, heartbeat: Heartbeat, now: float) -> None:
        """Take over a heartbeat that was read at `now`."""
        last = self.heartbeat
        if heartbeat.beat != last.beat:
            self.last_heartbeat_time = now
        if heartbeat.place != last.place:
            self.last_progress_time = now
        self.heartbeat = heartbeat

    def waiting_for(self, now: float) -> float:
        """Return how many seconds the rank has been in its current collective; 0 outside of one."""
        waits = self.heartbeat.collective is not None and self.exit_reason is None
        return now - self.last_progress_time if waits else 0.0

    @property
    def where(self) -> str:
        """The collective that the rank is in, for messages: " during backward"."""
        return f" during {self.heartbeat.collective}" if self.heartbeat.collective else ""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds, derived from the strategy's `timeout` and the number of ranks.

    Attributes:
        stall: How long a rank may wait in a collective without progress.
        exit_grace: How long a rank may take to exit after a failure is reported.
        heartbeat_interval: Time between two heartbeats.
        wait_interval: Time between two heartbeats while ranks wait for each other's.
    """

    stall: float
    exit_grace: float
    heartbeat_interval: float
    wait_interval: float = _WAIT_INTERVAL

    @classmethod
    def from_timeout(cls, timeout: float, world_size: int) -> "Timeouts":
        """Return the limits with which every rank has exited `timeout` seconds after it stopped making progress."""
        interval = min(max(1.0, world_size / _HEARTBEAT_RATE), timeout / 20)
        # Rank 0 keeps the store for two intervals, in which the others read of a failure.
        exit_grace = min(max(5.0, 2 * interval), timeout / 6)
        # One grace period each for the main thread to raise, for what cleans up behind it, and for the process to exit.
        return cls(timeout - 3 * exit_grace, exit_grace, interval, max(_WAIT_INTERVAL, world_size / _WAIT_RATE))

    @property
    def silence(self) -> float:
        """Time without a heartbeat after which a rank whose connections are closed is dead."""
        return 2 * self.heartbeat_interval

    @property
    def detection_latency(self) -> float:
        """Time from the death of a rank to the moment every rank has read of it: silence, and two exchanges at most."""
        return self.silence + 3 * self.heartbeat_interval


def detect_failure(ranks: Sequence[RankState], now: float, timeouts: Timeouts) -> RankFailure | None:
    """Return the first failure found, or None.

    Checked in order of certainty: a dead process, a rank that handles an error while the others go on, a rank that
    waits for one that failed or exited, a straggler, a deadlock. Without proof that a process is gone, nothing is
    reported before some rank has waited for `timeouts.stall` in one collective: as long as collectives complete, a
    silent rank is not a failure.
    """
    return (
        _dead_rank(ranks)
        or _rank_with_error(ranks)
        or _peer_of_failed_rank(ranks, now, timeouts)
        or _stalled_rank(ranks, now, timeouts)
    )


def detect_leader_failure(leader: RankState, own: RankState, now: float, timeouts: Timeouts) -> RankFailure | None:
    """Return the failure of rank 0, which observes all others, as seen by one of them; None while there is none."""
    failure = _dead_rank([leader]) or _peer_of_failed_rank([leader, own], now, timeouts)
    silent = now - leader.last_heartbeat_time
    # As long as rank 0 answers, it is the one to name the rank at fault.
    if failure is None and min(silent, own.waiting_for(now)) >= timeouts.stall:
        message = f"{leader.info} has sent no heartbeat for {silent:.0f} s; {own.info} waits for it{own.where}"
        return RankFailure(message, leader.info.rank)
    return failure


def confirm_collective(ranks: Sequence[Heartbeat]) -> tuple[int, str] | None:
    """Return the collective that all ranks are in, or wait to enter, although one handles an error; None if none."""
    seq, name = ranks[0].place
    is_same = len({rank.place for rank in ranks}) == 1
    return (seq, name) if is_same and name is not None and any(rank.handled for rank in ranks) else None


def decide_signals(ranks: Sequence[Heartbeat], last: SignalDecision) -> SignalDecision | None:
    """Return what ranks that wait before a batch do; None while that is open.

    All ranks handle a signal before the same batch. A rank that took a batch before it learned of the signal needs the
    others for it, so these take it, too, and all between, and wait before the next one. A decision stands: a rank that
    has already left looks like one that has taken the batch. An evaluation ends first unless all ranks have the same
    number of batches: one that has no batch left needs the others for what follows, and waits before none.
    """
    waiting = [rank.batch for rank in ranks if rank.is_waiting]
    if not waiting:
        return None
    if min(waiting) <= last.batch:
        return last
    lengths = {rank.evaluated for rank in ranks if rank.batch[1]}
    if len(lengths) > 1 or math.inf in lengths:
        return SignalDecision((min(waiting)[0], math.inf))
    if len(waiting) == len(ranks) and len(set(waiting)) == 1:
        return SignalDecision(waiting[0], tuple(sorted({signum for rank in ranks for signum in rank.signals})))
    # While gradients accumulate, a rank may be any number of batches ahead.
    taken = max(_last_taken(rank) for rank in ranks)
    return SignalDecision(taken) if taken >= min(waiting) else None


def _last_taken(rank: Heartbeat) -> tuple[int, float]:
    """Return the last batch that a rank has taken."""
    training, evaluation = rank.batch
    if not rank.is_waiting:
        return rank.batch
    return (training, evaluation - 1) if evaluation else (training - 1, math.inf)


def describe_error(error: BaseException) -> str:
    """Return an error in words: "ValueError: invalid batch"."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:_MAX_ERROR_LENGTH]


def describe_exit(code: int) -> str:
    """Return an exit code in words: "killed by signal 9", "exit code 1"."""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _dead_rank(ranks: Sequence[RankState]) -> RankFailure | None:
    for rank in ranks:
        heartbeat = rank.heartbeat
        if rank.exit_reason is None or heartbeat.closed:
            continue
        if heartbeat.error is not None:
            return RankFailure(f"{rank.info} failed{rank.where}: {heartbeat.error}", rank.info.rank)
        if heartbeat.training:
            return RankFailure(f"{rank.info} exited{rank.where}: {rank.exit_reason}", rank.info.rank)
    return None


def _rank_with_error(ranks: Sequence[RankState]) -> RankFailure | None:
    leader = ranks[0].heartbeat
    for rank in ranks:
        heartbeat = rank.heartbeat
        if heartbeat.handled is None or heartbeat.place == leader.confirmed:
            continue
        # Others may be behind, or in the same collective.
        seq = heartbeat.collective_seq
        if any(peer.heartbeat.collective_seq >= seq and peer.heartbeat.place != heartbeat.place for peer in ranks):
            return RankFailure(f"{rank.info} failed before {heartbeat.collective}: {heartbeat.handled}", rank.info.rank)
    return None


def _peer_of_failed_rank(ranks: Sequence[RankState], now: float, timeouts: Timeouts) -> RankFailure | None:
    # Ranks that all fail, or all finish, do not wait for each other.
    for peer in ranks:
        heartbeat = peer.heartbeat
        if peer.exit_reason is None and heartbeat.error is None and not heartbeat.closed:
            continue
        for rank in ranks:
            seconds = rank.waiting_for(now)
            if seconds > timeouts.heartbeat_interval and rank.heartbeat.collective_seq > heartbeat.collective_seq:
                cause = "left the job" if heartbeat.error is None else f"failed: {heartbeat.error}"
                message = f"{peer.info} {cause}; {rank.info} waits for it{rank.where}"
                return RankFailure(message, peer.info.rank)
    return None


def _stalled_rank(ranks: Sequence[RankState], now: float, timeouts: Timeouts) -> RankFailure | None:
    stalled = [rank for rank in ranks if rank.waiting_for(now) >= timeouts.stall]
    # A silent rank may have left its collective since: only the others show that collectives do not complete.
    witnesses = [rank for rank in stalled if now - rank.last_heartbeat_time <= timeouts.detection_latency]
    if not witnesses:
        return None
    # What a silent rank last published may be a collective that it has left since.
    by_progress = sorted(ranks, key=lambda rank: (rank.heartbeat.collective_seq, rank.last_heartbeat_time))
    last, waiting = by_progress[0], max(witnesses, key=by_progress.index)
    silent, without_progress = now - last.last_heartbeat_time, now - last.last_progress_time
    is_silent = silent > timeouts.detection_latency
    if last.heartbeat.collective_seq < waiting.heartbeat.collective_seq or (is_silent and last is not waiting):
        if without_progress < timeouts.stall:
            # It makes progress of its own and has not reached the collective yet.
            return None
        heard = f" and has sent no heartbeat for {silent:.0f} s" if is_silent else ""
        message = (
            f"{last.info} has made no progress for {without_progress:.0f} s{last.where}{heard}; {waiting.info} waits "
            f"for it{waiting.where}"
        )
        return RankFailure(message, last.info.rank)
    # All ranks have entered as many collectives, and not the same ones, or the network between them is down.
    if len(stalled) == len(ranks):
        waited = max(rank.waiting_for(now) for rank in ranks)
        places = ", ".join(f"{rank.info}{rank.where}" for rank in ranks[:_MAX_PLACES])
        places += f", and {len(ranks) - _MAX_PLACES} more" if len(ranks) > _MAX_PLACES else ""
        return RankFailure(f"no rank has made progress for {waited:.0f} s: {places}")
    return None
