"""When a rank is given up. Nothing here waits, connects or ends anything.

Every rank counts the points at which all ranks meet: a backward pass, a broadcast, a barrier. Ranks that train together
are at most a few points apart, so a rank that is behind and does not move is what the others wait for.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Progress:
    """How far a rank has come; it tells the others whenever this changes.

    Attributes:
        at: How many meeting points it has come to, without those at which it failed.
        where: The one that it is at, such as "backward"; None between two.
        active: Whether it is in a training, rather than before or after one.
        failed: What went wrong, once something has.
        stop: Whether it has been asked to end its training.
        batch: The training batch that it is at, counted from 1: in it or after it, unless it waits before it.
        halted: The batch before which it halts, 0 if none. It is set before `batch`, and declared behind it, because
            `replace` reads in that order: whoever looks in between sees a rank that has not come to the batch yet.
    """

    at: int = 0
    where: str | None = None
    active: bool = False
    failed: str | None = None
    stop: bool = False
    batch: int = 0
    halted: int = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for word whether to take the batch that it is at."""
        return self.halted == self.batch > 0


@dataclass(frozen=True, slots=True)
class Order:
    """What the ranks that have halted before a batch are to do. All batches before that one have been taken.

    Attributes:
        batch: The batch; 0 in what stands for no order yet.
        end: Whether to end the training there, rather than to take the batch.
    """

    batch: int
    end: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a rank runs.

    Attributes:
        rank: Among all ranks, from 0.
        host: The name of its machine.
        pid: Its process.
        machine: What two ranks have in common that see each other's processes by the same ids.
    """

    rank: int
    host: str
    pid: int
    machine: str

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


@dataclass(slots=True)
class Member:
    """What is known of a rank, with times in seconds of a clock that only goes forward.

    Attributes:
        identity: Where it runs.
        progress: How far it has come.
        since: When `progress.at` or `progress.where` last changed.
        lost: Why its connection ended; None while there is one.
        left: Whether it took its leave before the connection ended.
    """

    identity: Identity
    progress: Progress
    since: float
    lost: str | None = None
    left: bool = False

    @classmethod
    def about_to_train(cls, identity: Identity) -> "Member":
        """Return what is known of a rank that has been met, and has told nothing yet."""
        return cls(identity, Progress(active=True), time.monotonic())

    def advance(self, progress: Progress, now: float) -> None:
        """Take over what the rank tells of its progress."""
        if (progress.at, progress.where) != (self.progress.at, self.progress.where):
            self.since = now
        self.progress = progress


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds.

    Attributes:
        patience: For how long a rank that others wait for may stay where it is.
        grace: How long a rank may take to end when it is to.
        unreachable: For how long a machine may be out of reach.
        interval: How often ranks look at each other.
    """

    patience: float
    grace: float
    unreachable: float
    interval: float

    @property
    def moment(self) -> float:
        """How long it takes at most until rank 0 has heard of something, judged it, and told the others."""
        return 3 * self.interval

    @classmethod
    def within(cls, timeout: float) -> "Limits":
        """Return the limits with which everything has ended after `timeout` seconds."""
        grace = min(5.0, timeout / 4)
        return cls(
            # Once for what holds a rank up to be ended, once more for the rank to end.
            patience=timeout - 2 * grace,
            grace=grace,
            # A minute is more than a switch takes to restart, and RDMA connections have been given up by then.
            unreachable=min(60.0, timeout / 2),
            interval=min(1.0, timeout / 20),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """That this training is over, and why.

    Attributes:
        text: A sentence that names the rank.
        rank: The rank that is at fault; None when it cannot be told.
        lasted: For how long it has been so, in seconds.
        victim: The process to end, because it does not by itself; None if there is none.
        machine: The victim's machine.
    """

    text: str
    rank: int | None
    lasted: float = 0.0
    victim: int | None = None
    machine: str | None = None

    def as_message(self) -> dict[str, Any]:
        """Return what another rank can make the same verdict from."""
        return asdict(self)


def judge(members: Sequence[Member], now: float, limits: Limits) -> Verdict | None:
    """Return why the training cannot go on; None while it can.

    Args:
        members: All ranks.
        now: The time.
        limits: How long things may take.
    """
    return (
        _died(members)
        or _awaited_in_vain(members, now, limits)
        or _late(members, now, limits)
        or _stuck(members, now, limits)
    )


def judge_first(first: Member, own: Member, heard: float, now: float, limits: Limits) -> Verdict | None:
    """Return why rank 0, which judges all others, is to be given up itself; None while it is not.

    Args:
        first: Rank 0.
        own: The rank that judges.
        heard: When rank 0 was last heard of.
        now: The time.
        limits: How long things may take.
    """
    verdict = _died([first]) or _awaited_in_vain([first, own], now, limits)
    if verdict is None and first.lost is None and now - heard > limits.patience:
        text = f"{first.identity} does not answer: nothing was heard of it for {now - heard:.0f} s"
        verdict = _given_up(first, text, now - heard)
    return verdict


def order(ranks: Sequence[Progress], given: Order) -> Order | None:
    """Return what halted ranks are to do; None while that has to wait.

    All end before the same batch. A rank may have taken a batch before it heard that it should halt, and then it needs
    the others for it; so they take it, too, and halt before the next one.

    What was said of a batch stands, though some ranks have followed it when others have not heard it yet: a rank that
    has left the training looks like one that has taken the batch.

    Args:
        ranks: How far all of them have come.
        given: The last order.
    """
    halted = [rank.batch for rank in ranks if rank.waits]
    if not halted:
        return None
    first = min(halted)
    if first <= given.batch:
        return given
    if len(halted) == len(ranks) and len(set(halted)) == 1:
        return Order(first, end=True)
    taken = any(rank.batch > first or (rank.batch == first and not rank.waits) for rank in ranks)
    return Order(first, end=False) if taken else None


def _died(members: Sequence[Member]) -> Verdict | None:
    for member in members:
        cut_short = member.progress.active and not member.left and member.progress.failed is None
        if member.lost is not None and cut_short:
            return Verdict(f"{member.identity} {member.lost}{_place(member)}", member.identity.rank)
    return None


def _awaited_in_vain(members: Sequence[Member], now: float, limits: Limits) -> Verdict | None:
    """A rank is at a point to which another one will never come, because it has failed, or ended its training.

    Ranks that all fail, or all end, do not wait for each other.
    """
    for gone in members:
        if gone.lost is None and gone.progress.failed is None:
            continue
        for member in members:
            waits = member.lost is None and member.progress.where is not None and now - member.since > limits.interval
            if waits and member.progress.at > gone.progress.at:
                why = "has left the training" if gone.progress.failed is None else f"failed: {gone.progress.failed}"
                text = f"{gone.identity} {why}; {member.identity} waits for it{_place(member)}"
                return Verdict(text, gone.identity.rank, now - member.since)
    return None


def _late(members: Sequence[Member], now: float, limits: Limits) -> Verdict | None:
    present = [member for member in members if member.lost is None]
    first = max(present, key=lambda member: member.progress.at)
    late = [
        member for member in present if member.progress.at < first.progress.at and now - member.since > limits.patience
    ]
    if not late:
        return None
    last = min(late, key=lambda member: member.progress.at)
    lasted = now - last.since
    text = f"{last.identity} has not moved for {lasted:.0f} s{_place(last)}, and {first.identity} waits for it"
    return _given_up(last, text + _place(first), lasted)


def _stuck(members: Sequence[Member], now: float, limits: Limits) -> Verdict | None:
    """All ranks wait at the same count: they do not wait for the same thing, or the network between them is gone."""
    waiting = [member.progress.where is not None and now - member.since > limits.patience for member in members]
    if not all(waiting):
        return None
    places = ", ".join(f"{member.identity} in {member.progress.where}" for member in members)
    lasted = now - max(member.since for member in members)
    return Verdict(f"no rank has moved for {lasted:.0f} s: {places}", None, lasted)


def _given_up(member: Member, text: str, lasted: float) -> Verdict:
    # A rank that is not in a training does something of its own; it learns the verdict when it wants to train again.
    victim = member.identity.pid if member.progress.active else None
    return Verdict(text, member.identity.rank, lasted, victim, member.identity.machine)


def _place(member: Member) -> str:
    return "" if member.progress.where is None else f" in {member.progress.where}"
