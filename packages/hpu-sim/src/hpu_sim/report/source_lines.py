"""The sites of all ranks, put together by line: ranks of one job do the same at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.report.formatting import op_name

if TYPE_CHECKING:
    from hpu_sim.report.schema import Frame, Kind, RankRecord, Report, Site

#: Steps that a training must have before a line is said to be in its loop.
MIN_STEPS: Final = 3

_HOST_SYNCS: Final = {
    "aten::_local_scalar_dense": "a value was read: .item(), float(), a branch on a tensor, printing",
    "copy to host": "a tensor was copied to the host: .cpu(), .numpy(), printing",
    "synchronize": "the program asked to wait",
}


@dataclass(frozen=True)
class SourceLine:
    """One kind of event at one line, on the ranks where it happened.

    Attributes:
        kind: What happened.
        what: The operator, or the collective.
        variant: As in :class:`hpu_sim.report.schema.Site`.
        backward: The operator whose backward pass it was, or None.
        frame: The line; None where no Python was running.
        stack: Frames of the first time, innermost first.
        ranks: Ranks where it happened, ascending.
        count: Events on all of them.
        bytes: Bytes on all of them.
        in_first_step: Events in the first step, on the rank that had most events.
        count_per_rank: Events on that rank.
        steps: Steps in which it happened on that rank.
        last_step: Number of the last such step on any rank.
        most_in_step: Most events in one step on any rank.
        finished: Steps that ended on that rank.
        examples: A few of the details that came with the events.
    """

    kind: Kind
    op: str
    variant: str
    backward: str | None
    frame: Frame | None
    stack: tuple[Frame, ...]
    ranks: tuple[int, ...]
    count: int
    bytes: int
    in_first_step: int
    count_per_rank: int
    steps: int
    last_step: int
    max_per_step: int
    finished: int
    examples: tuple[str, ...]

    @property
    def later_steps(self) -> int:
        """Steps after the first one in which it happened."""
        return self.steps - (1 if self.in_first_step else 0)

    @property
    def is_in_loop(self) -> bool:
        """Whether it happened in at least half of the steps after the first one."""
        return self.finished >= MIN_STEPS and 2 * self.later_steps >= self.finished - 1

    @property
    def description(self) -> str:
        """What happened, in words."""
        if self.kind == "host_sync":
            words = _HOST_SYNCS.get(self.op, f"the shape depends on data: {op_name(self.op)}")
        elif self.kind == "compilation" and self.variant == "end":
            words = "the graph ended where earlier ones went on"
        elif self.kind in {"dtype", "collective"}:
            words = f"{op_name(self.op)}, {self.variant}"
        elif self.kind in {"h2d", "d2h"}:
            words = f"{'to the card' if self.kind == 'h2d' else 'to the host'}, {self.variant} memory"
        else:
            words = op_name(self.op)
        if self.backward is None:
            return words
        return f"{words} (backward of {self.backward})" if self.backward else f"{words} (backward)"

    @property
    def frequency(self) -> str:
        """How often it happened on a rank, in words."""
        times = "once" if self.count_per_rank == 1 else f"{self.count_per_rank} times"
        if not self.finished:
            return f"{times}, with no training step"
        if not self.later_steps:
            return f"{times}, in step 1"
        later = self.count_per_rank - self.in_first_step
        if self.later_steps == self.finished - 1 and later == self.max_per_step * self.later_steps:
            return "in every step" if self.max_per_step == 1 else f"{self.max_per_step} in every step"
        most = "" if self.max_per_step == 1 else f", at most {self.max_per_step} in one"
        return f"{times}, in {self.steps} of {max(self.finished, self.last_step)} steps{most}"


def rank_labels(report: Report) -> tuple[str, ...]:
    """Return a name for each record: its rank, and its process where several had the same rank, one after the other."""
    ranks = [record.rank for record in report.ranks]
    return tuple(
        str(record.rank) if ranks.count(record.rank) == 1 else f"{record.rank} (process {record.pid})"
        for record in report.ranks
    )


def source_lines(report: Report) -> tuple[SourceLine, ...]:
    """Return the lines of all ranks of a report, the most frequent first."""
    places: dict[tuple[str, str, str, str | None, str, int], list[tuple[RankRecord, Site]]] = {}
    for record in report.ranks:
        for site in record.sites:
            file, line = (site.frame.file, site.frame.line) if site.frame is not None else ("", 0)
            key = (site.kind, site.op, site.variant, site.backward, file, line)
            places.setdefault(key, []).append((record, site))
    return tuple(sorted(map(_join, places.values()), key=lambda line: -line.count))


def _join(sites: list[tuple[RankRecord, Site]]) -> SourceLine:
    record, site = max(sites, key=lambda pair: pair[1].count)
    return SourceLine(
        kind=site.kind,
        op=site.op,
        variant=site.variant,
        backward=site.backward,
        frame=site.frame,
        stack=site.stack,
        ranks=tuple(sorted({record.rank for record, _ in sites})),
        count=sum(site.count for _, site in sites),
        bytes=sum(site.bytes for _, site in sites),
        in_first_step=site.in_first_step,
        count_per_rank=site.count,
        steps=site.steps,
        last_step=max(site.last_step for _, site in sites),
        max_per_step=max(site.max_per_step for _, site in sites),
        finished=record.steps.finished,
        examples=site.examples,
    )
