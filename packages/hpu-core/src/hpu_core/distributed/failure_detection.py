"""Failure detection: pure functions from the ranks' last heartbeats to the failure, if any.

A collective on the device does not block the host, so a rank that hangs is found by progress, not by calls: all ranks
have stopped, and the device of the one at fault has nothing left to do, or its host has done fewer steps. Nothing here
waits, connects or exits.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from hpu_core.distributed.errors import describe_exit

_MAX_PLACES = 8
# Heartbeats in a second, of all ranks, and those while ranks wait for them. On one core of 2026, one takes the process
# of rank 0 about 20 microseconds in the store, and as long to read: see docs/records/scale.md.
_HEARTBEAT_RATE = 1400
_WAIT_RATE = 2560
_WAIT_INTERVAL = 0.05
# SynapseAI kills a process whose device makes no progress for this many seconds: scal_init.cpp of Intel's
# Gaudi3_Software, SCAL_TIMEOUT_NO_PROGRESS. A heartbeat may be as late as the difference.
SYNAPSE_TIMEOUT: Final = 600.0
_SYNAPSE_MARGIN: Final = 20.0
SYNAPSE_EXIT: Final = "SynapseAI killed it, because its device made no progress for 10 minutes"

_LEFT: Final = "left the job (its data may have ended earlier)"

FROZEN: Final = "its threads stand still"
STOPPED: Final = "its process is stopped"

SCOPES: Final = ("", "setup", "training step", "backward", "optimizer step", "evaluation step", "evaluation forward")
"""What the host of a rank may be in; a heartbeat has the index."""


class RankFailure(NamedTuple):
    """Why the job cannot continue.

    Attributes:
        message: One sentence that names rank, host and cause.
        rank: The failed rank; None if no single rank is at fault.
    """

    message: str
    rank: int | None = None


class SignalDecision(NamedTuple):
    """Signals that all ranks handle before the same batch; they take all earlier ones.

    Attributes:
        batch: The batch, as in `Progress.taken`; zeros while nothing is decided.
        signals: Their numbers; empty if the ranks take this batch, too.
    """

    batch: tuple[int, float] = (0, 0)
    signals: tuple[int, ...] = ()


class Progress(NamedTuple):
    """How far host and device of a rank are.

    Attributes:
        moves: How often the host has entered or left a scope.
        steps: Optimizer steps that the host has finished.
        batch: Batches of the next optimizer step that it has entered.
        stage: 0 before the forward pass of training, 1 in it, 2 from the backward pass on.
        scope: Index in `SCOPES`.
        waits: How many calls that wait for all ranks, such as barriers, it has entered.
        recorded: Events that it has recorded after its steps.
        finished: How many of them the device has reached.
        batches: Training batches that it has taken, in this training.
        evaluated: Batches that it has taken of the evaluation after the last one; 0 in training.
        wait: Checksum of the name of the last call that waits for all ranks, or of the next one if it handles an error.
    """

    moves: int = 0
    steps: int = 0
    batch: int = 0
    stage: int = 0
    scope: int = 0
    waits: int = 0
    recorded: int = 0
    finished: int = 0
    batches: int = 0
    evaluated: int = 0
    wait: int = 0

    @property
    def taken(self) -> tuple[int, int]:
        """The last batch that the host has taken."""
        return self.batches, self.evaluated

    @property
    def place(self) -> tuple[int, int, int]:
        """Where the host is in the training."""
        return self.steps, self.batch, self.stage

    @property
    def is_pending(self) -> bool:
        """Whether the device has not finished the steps of the host."""
        return self.finished < self.recorded

    def is_before(self, other: "Progress") -> bool:
        """Return whether another host is surely further; ranks may accumulate different numbers of batches."""
        if self.steps != other.steps:
            return self.steps < other.steps
        return self.stage < other.stage if self.batch == other.batch else self.batch == 0


_START: Final = Progress()
_NO_DECISION: Final = SignalDecision()


@dataclass(slots=True)
class Heartbeat:
    """State of one rank, published at every interval.

    Attributes:
        run: Number of the training that the rank is in; a process may train several times in one process group.
        sequence: Number of heartbeats published so far.
        progress: How far it is.
        call: Function of torch.distributed that has blocked its host for some seconds; None if none.
        line: Line of the program where its host has been for some seconds: "train.py:31 in load"; None if it moves.
        frozen: Why its Python threads stand still, `FROZEN` or `STOPPED`; None if they run.
        training: Whether the rank takes part in a training.
        error: Exception that ended training on this rank; None while there is none.
        pending_error: Exception that the program handles while it wants to wait for all ranks; None if none.
        signals: Signals that the rank received, for all ranks to handle.
        waiting: Batch before which it waits for a `SignalDecision`, as in `Progress.taken`; None if it does not.
        batches: Number of batches of the evaluation that it is in; infinite if unknown.
        epochs: Number of training epochs that all ranks have ended, as far as it knows.
        epoch_batches: Number of batches that it had in an epoch, while it waits for the others to end it; else 0.
        exited: Whether its process has ended.
        exits: Ranks that this rank launched and that have exited, and why, such as "killed by signal 9".
        failure: Rank 0 only: why the job cannot continue; None while it can.
        has_signals: Rank 0 only: whether a rank received a signal, so that all wait for a decision before each batch.
        decision: Rank 0 only: the last decision.
        common_wait: Rank 0 only: number of the last wait that all ranks enter although one handles an error.
    """

    run: int = 0
    sequence: int = 0
    progress: Progress = _START
    call: str | None = None
    line: str | None = None
    frozen: str | None = None
    training: bool = False
    error: str | None = None
    pending_error: str | None = None
    signals: tuple[int, ...] = ()
    waiting: tuple[int, float] | None = None
    batches: float = 0
    epochs: int = 0
    epoch_batches: int = 0
    exited: bool = False
    exits: dict[str, str] = field(default_factory=dict)  # JSON has no other keys.
    failure: RankFailure | None = None
    has_signals: bool = False
    decision: SignalDecision = _NO_DECISION
    common_wait: int = 0

    def to_json(self) -> str:
        """Return what differs from a new heartbeat; of thousands of ranks, all else would be most of what is read."""
        return json.dumps({name: value for name, new in _NEW.items() if (value := getattr(self, name)) != new})

    @classmethod
    def from_json(cls, text: bytes | str) -> "Heartbeat":
        """Return the heartbeat that `to_json` wrote, in which each tuple is a list."""
        record: dict[str, Any] = json.loads(text)
        return cls(**{name: _TUPLES[name](*value) if name in _TUPLES else value for name, value in record.items()})

    @property
    def next_wait(self) -> tuple[int, int]:
        """Number and name of the wait that the rank is in, or enters next if it handles an error."""
        return self.progress.waits + (self.pending_error is not None), self.progress.wait


_NEW: Final = {each.name: getattr(Heartbeat(), each.name) for each in fields(Heartbeat)}
_TUPLES: Final[dict[str, Callable[..., Any]]] = {
    "progress": Progress,
    "failure": RankFailure,
    "decision": lambda batch, signals: SignalDecision(tuple(batch), tuple(signals)),
    "signals": lambda *numbers: numbers,
    "waiting": lambda *batch: batch,
}


@dataclass(slots=True)
class RankState:
    """One rank as seen by another; times are seconds of a monotonic clock of the observer.

    Attributes:
        rank: The rank.
        name: What messages call it: "rank 3 (pid 4711 on node-1)".
        heartbeat: Its last heartbeat.
        last_progress_time: When its device last finished a step, or, with an idle device, when its host last moved.
        last_heartbeat_time: When its last heartbeat arrived.
        exit_reason: Why its process is known to have ended, such as "killed by signal 9"; None while it runs.
    """

    rank: int
    name: str
    heartbeat: Heartbeat
    last_progress_time: float
    last_heartbeat_time: float
    exit_reason: str | None = None

    def update(self, heartbeat: Heartbeat, now: float) -> None:
        """Take over a heartbeat that was read at `now`."""
        last, new = self.heartbeat.progress, heartbeat.progress
        if heartbeat.sequence != self.heartbeat.sequence:
            self.last_heartbeat_time = now
        # A host may run ahead of a device that makes no progress.
        if new.finished != last.finished or (new.moves != last.moves and not (new.is_pending and last.is_pending)):
            self.last_progress_time = now
        self.heartbeat = heartbeat

    @property
    def has_left(self) -> bool:
        """Whether the rank has left the training."""
        heartbeat = self.heartbeat
        return self.exit_reason is not None or heartbeat.error is not None or not heartbeat.training

    @property
    def handles_error(self) -> bool:
        """Whether the program handles an error, and wants to wait for all ranks."""
        return self.heartbeat.pending_error is not None

    @property
    def is_blocked(self) -> bool:
        """Whether the rank waits for its device, in a function of torch.distributed, or for all ranks."""
        heartbeat = self.heartbeat
        waits = heartbeat.call is not None or heartbeat.waiting is not None or heartbeat.epoch_batches > 0
        return heartbeat.progress.is_pending or waits or self.handles_error

    @property
    def is_in_step(self) -> bool:
        """Whether the host is in a step, where its device may block it before there is an event."""
        return self.heartbeat.progress.scope > 0 or self.heartbeat.frozen is not None

    def waiting_for(self, now: float) -> float:
        """Return for how many seconds the rank may have waited for another one; 0 if it works for itself."""
        return now - self.last_progress_time if not self.has_left and (self.is_blocked or self.is_in_step) else 0.0

    @property
    def where(self) -> str:
        """What the rank is in, for messages: " during backward", " during all_reduce in evaluation batch 5"."""
        name, batch = self.heartbeat.call or SCOPES[self.heartbeat.progress.scope], self.heartbeat.progress.evaluated
        return (f" during {name}" if name else "") + (f" in evaluation batch {batch}" if batch else "")

    @property
    def line(self) -> str:
        """The line where its host is, for messages."""
        return f" at {self.heartbeat.line}" if self.heartbeat.line else ""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds, derived from the strategy's `timeout` and the number of ranks.

    Attributes:
        progress_limit: How long the job may make no progress.
        exit_period: How long a rank may take to exit after a failure is reported.
        heartbeat_interval: Time between two heartbeats.
        wait_interval: Time between two heartbeats while ranks wait for each other's.
    """

    progress_limit: float
    exit_period: float
    heartbeat_interval: float
    wait_interval: float = _WAIT_INTERVAL

    @classmethod
    def from_timeout(cls, timeout: float, world_size: int) -> "Timeouts":
        """Return the limits with which every rank has exited `timeout` seconds after it stopped making progress."""
        interval = min(max(1.0, world_size / _HEARTBEAT_RATE), timeout / 20)
        # Rank 0 keeps the store for two intervals, in which the others read of a failure.
        exit_period = min(max(5.0, 2 * interval), timeout / 6)
        # One period each for the main thread to raise, for what cleans up after it, and for the process to exit.
        return cls(timeout - 3 * exit_period, exit_period, interval, max(_WAIT_INTERVAL, world_size / _WAIT_RATE))

    @property
    def heartbeat_timeout(self) -> float:
        """Time without a heartbeat after which a rank whose connections are closed is dead."""
        return 2 * self.heartbeat_interval

    @property
    def detection_latency(self) -> float:
        """Time from the death of a rank until every rank has read of it: the timeout, and two exchanges at most."""
        return self.heartbeat_timeout + 3 * self.heartbeat_interval


def detect_failure(ranks: Sequence[RankState], now: float, timeouts: Timeouts) -> RankFailure | None:
    """Return the first failure found, or None.

    Checked in order of certainty: a dead process, a rank that waits for one that left, handles an error or had fewer
    batches, a job without progress. Without proof that a rank has left, nothing is reported as long as any rank makes
    progress.
    """
    return (
        _dead_rank(ranks, now)
        or _missed_rank(ranks, ranks, now, timeouts)
        or _job_without_progress(ranks, now, timeouts)
    )


def detect_leader_failure(leader: RankState, own: RankState, now: float, timeouts: Timeouts) -> RankFailure | None:
    """Return the failure of rank 0, which observes all others, as seen by one of them; None while there is none."""
    return _dead_rank([leader], now) or _missed_rank([leader], [own], now, timeouts)


def find_common_wait(ranks: Sequence[Heartbeat]) -> int:
    """Return the number of the wait that all ranks are in, or enter next although they handle an error; else 0."""
    waits = {rank.next_wait for rank in ranks}
    return waits.pop()[0] if len(waits) == 1 and any(rank.pending_error is not None for rank in ranks) else 0


def decide_signals(ranks: Sequence[Heartbeat], last: SignalDecision) -> SignalDecision | None:
    """Return what ranks that wait before a batch do; None while that is open.

    All ranks handle a signal before the same batch. A rank that took a batch before it learned of the signal needs the
    others for it, so these take it, too, and all between, and wait before the next one. A decision stands: a rank that
    has already left looks like one that has taken the batch. An evaluation ends first unless all ranks have the same
    number of batches: one that has no batch left needs the others for what follows, and waits before none.
    """
    waiting = [rank.waiting for rank in ranks if rank.waiting is not None]
    if not waiting:
        return None
    if min(waiting) <= last.batch:
        return last
    lengths = {rank.batches for rank in ranks if (rank.waiting or rank.progress.taken)[1]}
    if len(lengths) > 1 or math.inf in lengths:
        return SignalDecision((min(waiting)[0], math.inf))
    if len(waiting) == len(ranks) and len(set(waiting)) == 1:
        return SignalDecision(waiting[0], tuple(sorted({signum for rank in ranks for signum in rank.signals})))
    # While gradients accumulate, a rank may be any number of batches ahead.
    taken = max(_last_taken(rank) for rank in ranks)
    return SignalDecision(taken) if taken >= min(waiting) else None


def _last_taken(rank: Heartbeat) -> tuple[int, float]:
    """Return the last batch that a rank has taken; one that waits before a training batch has ended its evaluation."""
    is_next = rank.waiting is not None and rank.waiting[1] == 0
    return (rank.progress.batches, math.inf) if is_next else rank.progress.taken


def _dead_rank(ranks: Sequence[RankState], now: float) -> RankFailure | None:
    for rank in ranks:
        heartbeat = rank.heartbeat
        if rank.exit_reason is None:
            continue
        if heartbeat.error is not None:
            return RankFailure(f"{rank.name} failed{rank.where}: {heartbeat.error}", rank.rank)
        if heartbeat.training:
            idle = heartbeat.progress.is_pending and now - rank.last_progress_time
            is_synapse = rank.exit_reason == describe_exit(-9) and idle > SYNAPSE_TIMEOUT - _SYNAPSE_MARGIN
            by = f" ({SYNAPSE_EXIT})" if is_synapse else ""
            return RankFailure(f"{rank.name} exited{rank.where}: {rank.exit_reason}{by}", rank.rank)
    return None


def _missed_rank(
    peers: Sequence[RankState], ranks: Sequence[RankState], now: float, timeouts: Timeouts
) -> RankFailure | None:
    """Return the failure of a peer for which one of `ranks` waits in vain. Ranks that all left wait for no other."""
    common_wait = peers[0].heartbeat.common_wait
    waiting = [rank for rank in ranks if rank.waiting_for(now) > timeouts.heartbeat_interval]
    # A rank that handles an error before the common wait goes on, which has yet to be read.
    waiting = [rank for rank in waiting if not (rank.handles_error and rank.heartbeat.next_wait[0] == common_wait)]
    for peer in peers:
        heartbeat = peer.heartbeat
        if peer.has_left:
            cause = _LEFT if heartbeat.error is None else f"failed: {heartbeat.error}"
        elif heartbeat.epoch_batches:
            cause = f"had fewer batches: its epoch ended after {heartbeat.epoch_batches}"
        elif peer.handles_error and heartbeat.next_wait[0] != common_wait:
            cause = f"failed{peer.where}: {heartbeat.pending_error}"
        else:
            continue
        for rank in waiting:
            if _misses(rank, peer, now, timeouts):
                return RankFailure(f"{peer.name} {cause}; {rank.name} waits for it{rank.where}", peer.rank)
    return None


def _misses(rank: RankState, peer: RankState, now: float, timeouts: Timeouts) -> bool:
    """Return whether a rank waits where a peer does not come that left, has ended its epoch, or handles an error.

    That is in a later step, or in a wait that the peer has not entered. Ranks that accumulate may have different
    numbers of batches, but not of steps.
    """
    own, other, seconds = rank.heartbeat, peer.heartbeat, rank.waiting_for(now)
    is_further = own.progress.place > other.progress.place or own.next_wait[0] > other.progress.waits
    if peer.has_left:
        # Ranks may evaluate different numbers of batches, with or without each other.
        return is_further or (rank.is_blocked and seconds >= timeouts.progress_limit)
    if other.epoch_batches:
        # A rank that handles an error is itself why the peer waits.
        return is_further and own.epochs == other.epochs and not rank.handles_error
    # At the end of the epoch, or in the rest of a call that the peer has left, whose device has nothing to wait for.
    is_waiting = (own.epoch_batches > 0 or own.call is not None) and not other.progress.is_pending
    return own.next_wait != other.next_wait and (is_further or (is_waiting and seconds > timeouts.exit_period))


def _job_without_progress(ranks: Sequence[RankState], now: float, timeouts: Timeouts) -> RankFailure | None:
    """Return the failure of a job without progress for `progress_limit`, in which some rank waits for another."""
    active = [rank for rank in ranks if not rank.has_left]
    if len(active) < 2 or any(now - rank.last_progress_time < timeouts.progress_limit for rank in active):  # noqa: PLR2004 - a rank and the one it waits for.
        return None
    inactive = [rank for rank in active if now - rank.last_heartbeat_time > timeouts.detection_latency]
    inactive = inactive or [rank for rank in active if rank.heartbeat.frozen == STOPPED]
    present = [rank for rank in active if rank not in inactive]
    working = [rank for rank in present if not rank.is_blocked and not rank.is_in_step]
    waiting = max((rank for rank in present if rank not in working), key=_place, default=None)
    if waiting is None:
        # Each works for itself, or its device blocks it where there is no event yet.
        waiting = max(present, key=_place, default=None)
        if waiting is None or not any(_is_before(rank, waiting) for rank in active):
            return None
    candidates = inactive or working or [rank for rank in present if _is_before(rank, waiting)]
    first = min(candidates, key=_place, default=None)
    # Else more than one may be at fault.
    if first and (inactive or all(rank is first or _is_before(first, rank) for rank in candidates)):
        return _no_progress_failure(first, waiting, now, timeouts)
    seconds = min(now - rank.last_progress_time for rank in active)
    ordered = [*working, *(rank for rank in active if rank not in working)]
    places = ", ".join(f"{rank.name}{rank.where}{rank.line}" for rank in ordered[:_MAX_PLACES])
    places += f", and {len(ordered) - _MAX_PLACES} more" if len(ordered) > _MAX_PLACES else ""
    return RankFailure(f"no rank has made progress for {seconds:.0f} s: {places}")


def _no_progress_failure(rank: RankState, waiting: RankState, now: float, timeouts: Timeouts) -> RankFailure:
    idle, inactive = now - rank.last_progress_time, now - rank.last_heartbeat_time
    suffix = f" and has sent no heartbeat for {inactive:.0f} s" if inactive > timeouts.detection_latency else ""
    suffix = suffix if rank.heartbeat.frozen is None else f" and {rank.heartbeat.frozen}"
    message = f"{rank.name} has made no progress for {idle:.0f} s{rank.where}{rank.line}{suffix}"
    return RankFailure(f"{message}; {waiting.name} waits for it{waiting.where}", rank.rank)


def _place(rank: RankState) -> tuple[tuple[int, int, int], float]:
    return rank.heartbeat.progress.place, rank.last_heartbeat_time


def _is_before(rank: RankState, other: RankState) -> bool:
    return rank.heartbeat.progress.is_before(other.heartbeat.progress)
