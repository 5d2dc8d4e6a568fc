"""Failures of a job: pure functions from what the ranks have reported to the failure, if any, one for each cause.

A healthy job has none. Ranks in one place are never at fault, whatever they do: a rank is so by its error, by its exit,
or because it stands still outside of a step that another rank has entered and waits in.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from hpu_core.distributed.progress import BARRIER, END_OF_EPOCH

_MAX_LINES = 8


class Failure(NamedTuple):
    """Why the job cannot continue.

    Attributes:
        message: One sentence that names rank, host and cause.
        rank: The failed rank.
    """

    message: str
    rank: int


@dataclass(slots=True)
class Report:
    """What a rank publishes every few seconds, and what its reader adds; see `Progress` for fields of the same names.

    Attributes:
        name: What messages call the rank: "rank 3 (pid 4711 on node-1)".
        host: The first rank of its machine: machines may have one name.
        count: Number of its reports so far; 0 before its training begins.
        state: "training"; "left" after its training; "ended" at the end of a program whose training has failed; "off"
            where failure detection has failed.
        error: The error with which it has left, in words.
        line: The program's line where its host is, once that stands still.
        idle: Seconds for which its host has shown no sign of work.
        exits: Ranks that have exited, of its neighbors, and why: {"1": "killed by signal 9"}.
        stopped: Neighbors whose process is stopped.
        elapsed: Added: seconds since the reader received this.
        exit: Added: why its process has ended, as a neighbor has seen.
        is_stopped: Added: whether its process is stopped.
    """

    rank: int
    name: str
    host: int = 0
    count: int = 0
    state: str = "training"
    error: str | None = None
    place: int = 0
    scope: str = ""
    waits: int = 0
    wait: str | None = None
    line: str = ""
    idle: float = 0.0
    exits: dict[str, str] = field(default_factory=dict)  # JSON has no other keys.
    stopped: list[int] = field(default_factory=list)
    elapsed: float = 0.0
    exit: str | None = None
    is_stopped: bool = False

    def to_json(self) -> str:
        """Return the report as text."""
        return json.dumps(asdict(self))

    @property
    def is_active(self) -> bool:
        """Whether the rank takes part in the training."""
        return self.state == "training" and self.count > 0 and self.exit is None

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for another rank: in a step, or in a call that waits for all."""
        return bool(self.scope) or self.wait is not None

    @property
    def where(self) -> str:
        """What it is in, for messages: " during backward"."""
        return f" during {self.wait or self.scope}" if self.may_wait else ""

    def needs(self, other: "Report") -> bool:
        """Return whether it has entered a step, or waits in a call, that another rank has not entered."""
        return self.place > other.place or (self.wait is not None and self.waits > other.waits)

    def is_missing(self, other: "Report") -> bool:
        """Return whether it is outside of a step that another rank has entered, and not at the end of an epoch."""
        # Where batches are unequal, a rank may end an epoch with one step more.
        place = other.place - 2 if other.wait == END_OF_EPOCH else other.place
        return self.wait != END_OF_EPOCH and not self.scope and self.place < place


def find_failure(ranks: Sequence[Report], limit: float, delay: float) -> Failure | None:
    """Return the failure of a job; None while it is healthy, or in doubt.

    Args:
        ranks: All ranks, or rank 0 and the reader.
        limit: Seconds without a sign of work after which a rank hangs.
        delay: Seconds after which a rank waits in vain for one that has left.
    """
    return _failed(ranks) or _left(ranks, delay) or _idle([each for each in ranks if each.is_active], limit)


def find_warning(ranks: Sequence[Report], limit: float) -> str | None:
    """Return a warning about a job in which some rank waits and none shows a sign of work; None for any other."""
    active = [each for each in ranks if each.is_active]
    if not any(each.may_wait for each in active) or any(each.idle + each.elapsed < limit for each in active):
        return None
    lines = (f"{each.name}{each.where}{_at(each)}" for each in active[:_MAX_LINES])
    return f"no rank has moved for {limit:.0f} s; if they work, all is well: {', '.join(lines)}"


def _failed(ranks: Sequence[Report]) -> Failure | None:
    """Return the failure of a rank that has published its error, or else whose process has ended in its training."""
    for each in ranks:
        if each.error is not None:
            return Failure(f"{each.name} failed{each.where}: {each.error}", each.rank)
    for each in ranks:
        if each.exit is not None and each.state == "training":
            return Failure(f"{each.name} exited{each.where}: {each.exit}", each.rank)
    return None


def _left(ranks: Sequence[Report], delay: float) -> Failure | None:
    """Return the failure of a rank that has left, or ended its epoch, while another waits where it does not come."""
    waiting = [each for each in ranks if each.is_active and each.idle + each.elapsed > delay]
    for other in ranks:
        has_left = other.state in {"left", "ended"}
        cause = "left the job (its data may have ended earlier)" if has_left else "had fewer batches in this epoch"
        for each in waiting if has_left or (other.is_active and other.wait == END_OF_EPOCH) else ():
            # All pass a barrier at once: one that was in it some time after the other had left stays there.
            shared = min(each.idle, other.idle + other.elapsed - each.elapsed) if each.wait == BARRIER else 0
            # Ranks that end an epoch with different numbers of steps end it together.
            if (has_left and shared > delay) or (each.needs(other) and (has_left or each.wait != END_OF_EPOCH)):
                return Failure(f"{other.name} {cause}; {each.name} waits for it{each.where}", other.rank)
    return None


def _idle(active: Sequence[Report], limit: float) -> Failure | None:
    """Return the failure of a rank for which another waits: stopped, on a machine that is gone, or outside of its step.

    While one works, the others may wait for it.
    """
    if not active or any(each.idle + each.elapsed < limit for each in active):
        return None
    reached = {each.host for each in active if each.elapsed < limit}
    stopped, lost = [each for each in active if each.is_stopped], [each for each in active if each.host not in reached]
    for found, suffix in (
        (stopped, " and its process is stopped"),
        (lost, f" and has sent no heartbeat for {max((each.elapsed for each in lost), default=0):.0f} s"),
    ):
        for each in active:
            # A host may have run ahead, and waits for its device alone.
            if found and each not in found and (each.may_wait or each.place > found[0].place):
                return _describe(found[0], each, suffix)
    first = max(active, key=lambda each: each.place)
    last = min((each for each in active if each.is_missing(first)), key=lambda each: each.place, default=None)
    # One that cannot report may be further.
    return _describe(last, first) if last is not None and last.elapsed < last.idle else None


def _describe(rank: Report, waiting: Report, suffix: str = "") -> Failure:
    text = f"{rank.name} has made no progress for {rank.idle + rank.elapsed:.0f} s{rank.where}{_at(rank)}{suffix}"
    return Failure(f"{text}; {waiting.name} waits for it{waiting.where}", rank.rank)


def _at(rank: Report) -> str:
    return f" at {rank.line}" if rank.line else ""
