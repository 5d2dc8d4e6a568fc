"""Verdict on a job: pure functions from what the ranks have reported to the failure, if any, one for each cause.

A healthy job has none. Ranks in one place are never at fault, whatever they do: a rank is so by its error, by its exit,
or because it stands still outside of a step that another rank has entered and waits in.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from hpu_core.distributed.progress import BARRIER, END_OF_EPOCH, END_OF_PROGRAM

_MAX_LINES = 8


class Verdict(NamedTuple):
    """Why the job cannot continue.

    Attributes:
        message: One sentence that names rank, host and cause.
        rank: The failed rank.
    """

    message: str
    rank: int


@dataclass(slots=True)
class Report:
    """What a rank publishes every few seconds, and what its judge adds; see `Progress` for fields of the same names.

    Attributes:
        name: What messages call the rank: "rank 3 (pid 4711 on node-1)".
        host: The first rank of its machine: machines may have one name.
        beat: Number of its reports so far; 0 before its training begins.
        state: "training", "left", "ended" at the end of a program whose training has failed, or "off" where failure
            detection has failed.
        error: The error with which it has left, in words.
        line: The program's line where its host is, once that stands still.
        still: Seconds for which its host has shown no sign of work.
        exits: Ranks that have exited, of those around it, and why: {"1": "killed by signal 9"}.
        stopped: Ranks around it whose process is stopped.
        silent: Added: seconds since the judge received this.
        exit: Added: why its process has ended, as one around it has seen.
        is_stopped: Added: whether its process is stopped.
    """

    rank: int
    name: str
    host: int = 0
    beat: int = 0
    state: str = "training"
    error: str | None = None
    place: int = 0
    scope: str = ""
    waits: int = 0
    wait: str | None = None
    line: str = ""
    still: float = 0.0
    exits: dict[str, str] = field(default_factory=dict)  # JSON has no other keys.
    stopped: list[int] = field(default_factory=list)
    silent: float = 0.0
    exit: str | None = None
    is_stopped: bool = False

    def to_json(self) -> str:
        """Return the report as text."""
        return json.dumps(asdict(self))

    @property
    def is_active(self) -> bool:
        """Whether the rank takes part in the training."""
        return self.state == "training" and self.beat > 0 and self.exit is None

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

    def hangs_behind(self, other: "Report") -> bool:
        """Return whether it is outside of a step that another rank has entered, and not at the end of an epoch."""
        # Where batches are unequal, a rank may end an epoch with one step more.
        place = other.place - 2 if other.wait == END_OF_EPOCH else other.place
        return self.wait != END_OF_EPOCH and not self.scope and self.place < place


def find_verdict(ranks: Sequence[Report], limit: float, moment: float) -> Verdict | None:
    """Return the failure of a job; None while it is healthy, or in doubt.

    Args:
        ranks: All ranks, or rank 0 and the observer.
        limit: Seconds without a sign of work after which a rank hangs.
        moment: Seconds after which a rank waits in vain for one that has left.
    """
    active = [each for each in ranks if each.is_active]
    return _failed(ranks) or _missed(ranks, moment) or _ended(active, moment) or _stalled(active, limit)


def doubt(ranks: Sequence[Report], limit: float) -> str | None:
    """Return a warning about a job in which some rank waits and none shows a sign of work; None for any other."""
    active = [each for each in ranks if each.is_active]
    if not any(each.may_wait for each in active) or any(each.still + each.silent < limit for each in active):
        return None
    lines = (f"{each.name}{each.where}{_at(each)}" for each in active[:_MAX_LINES])
    return f"no rank has moved for {limit:.0f} s; if they work, all is well: {', '.join(lines)}"


def _failed(ranks: Sequence[Report]) -> Verdict | None:
    """Return the failure of a rank that has published its error, or else whose process has ended in its training."""
    for each in ranks:
        if each.error is not None:
            return Verdict(f"{each.name} failed{each.where}: {each.error}", each.rank)
    for each in ranks:
        if each.exit is not None and each.state == "training":
            return Verdict(f"{each.name} exited{each.where}: {each.exit}", each.rank)
    return None


def _missed(ranks: Sequence[Report], moment: float) -> Verdict | None:
    """Return the failure of a rank that has left, or ended its epoch, while another stands where it does not come."""
    standing = [each for each in ranks if each.is_active and each.still + each.silent > moment]
    for gone in ranks:
        has_left, ends_epoch = gone.state in {"left", "ended"}, gone.is_active and gone.wait == END_OF_EPOCH
        cause = "left the job (its data may have ended earlier)" if has_left else "had fewer batches in this epoch"
        for each in standing if has_left or ends_epoch else ():
            # Ranks that end an epoch with different numbers of steps end it together.
            if each.needs(gone) and (has_left or each.wait != END_OF_EPOCH):
                return Verdict(f"{gone.name} {cause}; {each.name} waits for it{each.where}", gone.rank)
    return None


def _ended(active: Sequence[Report], moment: float) -> Verdict | None:
    """Return the failure of a rank that has ended its program while another one stands in a barrier."""
    standing = [each for each in active if each.wait == BARRIER and each.still > moment]
    for gone in active:
        for each in standing if gone.wait == END_OF_PROGRAM else ():
            # All pass a barrier at once: one that was in it a moment after the end of the other's program stays there.
            if gone.still + gone.silent > each.silent + moment:
                return Verdict(f"{gone.name} has ended its program; {each.name} waits for it{each.where}", gone.rank)
    return None


def _stalled(active: Sequence[Report], limit: float) -> Verdict | None:
    """Return the failure of a rank for which another waits: stopped, on a machine that is gone, or outside of its step.

    While one works, the others may wait for it.
    """
    if not active or any(each.still + each.silent < limit for each in active):
        return None
    reached = {each.host for each in active if each.silent < limit}
    stopped, lost = [each for each in active if each.is_stopped], [each for each in active if each.host not in reached]
    for suspects, suffix in (
        (stopped, " and its process is stopped"),
        (lost, f" and has sent no heartbeat for {max((each.silent for each in lost), default=0):.0f} s"),
    ):
        for each in active:
            # A host may have run ahead, and waits for its device alone.
            if suspects and each not in suspects and (each.may_wait or each.place > suspects[0].place):
                return _stall(suspects[0], each, suffix)
    ahead = max(active, key=lambda each: each.place)
    behind = min((each for each in active if each.hangs_behind(ahead)), key=lambda each: each.place, default=None)
    # One that cannot report may be further.
    return _stall(behind, ahead) if behind is not None and behind.silent < behind.still else None


def _stall(rank: Report, waiting: Report, suffix: str = "") -> Verdict:
    text = f"{rank.name} has made no progress for {rank.still + rank.silent:.0f} s{rank.where}{_at(rank)}{suffix}"
    return Verdict(f"{text}; {waiting.name} waits for it{waiting.where}", rank.rank)


def _at(rank: Report) -> str:
    return f" at {rank.line}" if rank.line else ""
