"""Verdict on a job: pure functions from what the ranks have reported to the failure, if any, one for each cause.

A healthy job has none. Ranks in one place are never at fault, whatever they do: a rank is so by its error, by its exit,
or because it stands still outside of a step that another rank has entered and waits in.
"""

import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from hpu_core.distributed.progress import END_OF_EPOCH

_MAX_PLACES = 8


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
    """What a rank publishes every few seconds; see `Progress` for the fields of the same names.

    Attributes:
        name: What messages call the rank: "rank 3 (pid 4711 on node-1)".
        host: The first rank of its machine: machines may have one name.
        beat: Number of its reports so far; 0 before its training begins.
        state: "training", "left", or "off" where failure detection has failed.
        error: The error with which it has left, in words.
        line: The program's line where its host is, once that stands still.
        still: Seconds for which its host has shown no sign of work.
        exits: Ranks that have exited, of those around it, and why: {"1": "killed by signal 9"}.
        stopped: Ranks around it whose process is stopped.
    """

    name: str
    host: str = ""
    beat: int = 0
    state: str = "training"
    error: str | None = None
    steps: int = 0
    has_entered: bool = False
    scope: str = ""
    waits: int = 0
    wait: str | None = None
    batches: int = 0
    line: str = ""
    still: float = 0.0
    exits: dict[str, str] = field(default_factory=dict)  # JSON has no other keys.
    stopped: list[int] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the report as text."""
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Rank:
    """A rank as the judge sees it.

    Attributes:
        rank: The rank.
        report: Its last report.
        seen: When that report arrived.
        silent: Seconds since then.
        exit: Why its process has ended, as one around it has seen.
        is_stopped: Whether its process is stopped.
    """

    rank: int
    report: Report
    seen: float = 0.0
    silent: float = 0.0
    exit: str | None = None
    is_stopped: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it takes part in the training."""
        return self.report.state == "training" and self.report.beat > 0 and self.exit is None

    @property
    def place(self) -> tuple[int, bool]:
        """Where its host is: ranks with the same steps, within them or not, are in one place."""
        return self.report.steps, self.report.has_entered

    @property
    def still(self) -> float:
        """Seconds for which its host has shown no sign of work."""
        return self.report.still + self.silent

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for another rank: in a step, or in a call that waits for all."""
        return bool(self.report.scope) or self.report.wait is not None

    @property
    def where(self) -> str:
        """What it is in, for messages: " during backward"."""
        return f" during {self.report.wait or self.report.scope}" if self.may_wait else ""

    @property
    def line(self) -> str:
        """Its line, for messages: " at train.py:31 in load"."""
        return f" at {self.report.line}" if self.report.line else ""

    def may_wait_for(self, other: "Rank") -> bool:
        """Return whether it may wait for another rank; its host may have run ahead and wait for its device alone."""
        return self.may_wait or self.place > other.place

    def hangs_behind(self, other: "Rank") -> bool:
        """Return whether it is outside of a step that another rank has entered, and not at the end of an epoch."""
        if self.report.wait == END_OF_EPOCH or self.report.scope:
            return False
        # Where batches are unequal, a rank may end an epoch with one step more.
        ahead = 1 if other.report.wait == END_OF_EPOCH else 0
        return self.place < (other.report.steps - ahead, other.report.has_entered)

    def needs(self, other: "Rank") -> bool:
        """Return whether it has entered a step, or waits in a call, that another rank has not entered."""
        return self.place > other.place or (self.report.wait is not None and self.report.waits > other.report.waits)


def find_verdict(ranks: Sequence[Rank], limit: float, moment: float) -> Verdict | None:
    """Return the failure of a job; None while it is healthy, or in doubt.

    Args:
        ranks: All ranks, or rank 0 and the observer.
        limit: Seconds without a sign of work after which a rank hangs.
        moment: Seconds after which a rank waits in vain for one that has left.
    """
    found = _failed(ranks) or _exited(ranks) or _missed(ranks, moment)
    active = [each for each in ranks if each.is_active]
    # While one works, the others may wait for it.
    if found or any(each.still < limit for each in active):
        return found
    return _stopped(active) or _unreachable(active, limit) or _hung(active)


def doubt(ranks: Sequence[Rank], limit: float) -> str | None:
    """Return a warning about a job in which some rank waits and none shows a sign of work; None for any other."""
    active = [each for each in ranks if each.is_active]
    if not any(each.may_wait for each in active) or any(each.still < limit for each in active):
        return None
    places = ", ".join(f"{each.report.name}{each.where}{each.line}" for each in active[:_MAX_PLACES])
    more = f", and {len(active) - _MAX_PLACES} more" if len(active) > _MAX_PLACES else ""
    seconds = min(each.still for each in active)
    return f"no rank has moved for {seconds:.0f} s; if they work, all is well: {places}{more}"


def _failed(ranks: Iterable[Rank]) -> Verdict | None:
    """Return the failure of a rank that has published its error."""
    for each in ranks:
        if each.report.error is not None:
            return Verdict(f"{each.report.name} failed{each.where}: {each.report.error}", each.rank)
    return None


def _exited(ranks: Iterable[Rank]) -> Verdict | None:
    """Return the failure of a rank whose process has ended in its training."""
    for each in ranks:
        if each.exit is not None and each.report.state == "training":
            return Verdict(f"{each.report.name} exited{each.where}: {each.exit}", each.rank)
    return None


def _missed(ranks: Sequence[Rank], moment: float) -> Verdict | None:
    """Return the failure of a rank that has left, or ended its epoch, while another stands where it does not come."""
    standing = [each for each in ranks if each.is_active and each.still > moment]
    for gone in ranks:
        if gone.report.state == "left":
            cause = "left the job (its data may have ended earlier)"
        elif gone.is_active and gone.report.wait == END_OF_EPOCH:
            cause = f"had fewer batches: its epoch ended after {gone.report.batches}"
        else:
            continue
        for each in standing:
            # Ranks that end an epoch with different numbers of steps end it together.
            if each.needs(gone) and (gone.report.state == "left" or each.report.wait != END_OF_EPOCH):
                return Verdict(f"{gone.report.name} {cause}; {each.report.name} waits for it{each.where}", gone.rank)
    return None


def _stopped(ranks: Sequence[Rank]) -> Verdict | None:
    """Return the failure of a rank whose process is stopped while another waits."""
    stopped = [each for each in ranks if each.is_stopped]
    waiting = [each for each in ranks if stopped and each.may_wait_for(stopped[0]) and not each.is_stopped]
    return _stall(stopped[0], waiting[0], " and its process is stopped") if waiting else None


def _unreachable(ranks: Sequence[Rank], limit: float) -> Verdict | None:
    """Return the failure of a machine of which no rank reports while one of another waits."""
    hosts = {each.report.host for each in ranks if each.silent < limit}
    lost = [each for each in ranks if each.report.host not in hosts]
    waiting = [each for each in ranks if lost and each.may_wait_for(lost[0]) and each.report.host in hosts]
    if not waiting:
        return None
    return _stall(lost[0], waiting[0], f" and has sent no heartbeat for {lost[0].silent:.0f} s")


def _hung(ranks: Sequence[Rank]) -> Verdict | None:
    """Return the failure of the rank that is behind, outside of the step that another has entered."""
    ranks = sorted(ranks, key=operator.attrgetter("place"))
    behind = [each for each in ranks if each.hangs_behind(ranks[-1])]
    # One that cannot report may be further.
    return _stall(behind[0], ranks[-1]) if behind and behind[0].silent < behind[0].still / 2 else None


def _stall(rank: Rank, waiting: Rank, suffix: str = "") -> Verdict:
    text = f"{rank.report.name} has made no progress for {rank.still:.0f} s{rank.where}{rank.line}{suffix}"
    return Verdict(f"{text}; {waiting.report.name} waits for it{waiting.where}", rank.rank)
