"""Source lines: sites of all ranks, merged by stack and cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hpu_sim.common.document import Entry
from hpu_sim.common.formatting import op_name

if TYPE_CHECKING:
    from hpu_sim.report.schema import RankRecord, Report, Site

#: Minimum number of training steps to tell a line in the training loop from others.
MIN_STEPS: Final = 3

_HOST_SYNCS: Final = {
    "aten::_local_scalar_dense": "scalar read: .item(), float(), a branch on a tensor, printing",
    "copy to host": "copy to the host: .cpu(), .numpy(), printing",
    "synchronize": "explicit synchronization",
    "Event.synchronize": "wait for an event",
    "Stream.synchronize": "wait for a stream",
}
#: Occurrences of events in a run, in the order of the report.
OCCURRENCES: Final = ("every step", "some steps", "no training steps")

_CACHE_MISSES: Final = {
    "shapes": "new input shapes: ",
    "arguments": "new arguments: ",
    "operators": "new operator: ",
    "end": "new end of the graph",
}


@dataclass(frozen=True)
class SourceLine:
    """One kind of event with one cause and one stack, on all ranks.

    Attributes:
        site: Site of the rank with most events.
        who: Ranks with such events; empty in a report of one.
        count: Number of events on all ranks.
        bytes: Bytes on all ranks.
        last_step: Last step with such an event on any rank.
        finished: Number of completed steps on the rank with most events.
    """

    site: Site
    who: str
    count: int
    bytes: int
    last_step: int
    finished: int

    @property
    def entry(self) -> Entry:
        """The line in a document."""
        site = self.site
        return Entry(
            "no Python line" if site.frame is None else f"{site.frame.file}:{site.frame.line}",
            site.cause or (site.frame.source if site.frame is not None else ""),
            self.frequency,
            self.description,
            self.bytes,
            self.who,
            site.examples,
            site.stack,
            site.cause,
        )

    @property
    def later_steps(self) -> int:
        """Number of steps with such an event, without the first step."""
        return self.site.steps - (1 if self.site.in_first_step else 0)

    @property
    def occurrence(self) -> str:
        """One of :data:`OCCURRENCES`: the part of the run with such events."""
        if not self.finished:
            return "no training steps"
        # At least half of the steps after the first one.
        if self.finished >= MIN_STEPS and 2 * self.later_steps >= self.finished - 1:
            return "every step"
        return "some steps"

    @property
    def description(self) -> str:
        """Description of the event."""
        site, op = self.site, op_name(self.site.op)
        if site.kind == "host_sync":
            text = _HOST_SYNCS.get(site.op, f"data-dependent shape: {op}")
        elif site.kind == "cpu_fallback":
            text = f"no kernel on the card: {op}"
        elif site.kind == "compilation":
            shapes = site.examples[:1] if site.variant == "shapes" else []
            text = ", ".join([f"{_CACHE_MISSES[site.variant]}{op}", *shapes])
        elif site.kind in {"dtype", "collective"}:
            text = f"{op}, {site.variant}"
        elif site.kind in {"h2d", "d2h"}:
            text = f"{'host to device' if site.kind == 'h2d' else 'device to host'}, {site.variant} memory"
        else:
            text = ": ".join([op, *site.examples[:1]])
        if site.backward is None:
            return text
        return f"{text} (backward of {site.backward})" if site.backward else f"{text} (backward)"

    @property
    def frequency(self) -> str:
        """Frequency of the event on one rank."""
        site = self.site
        times = "once" if site.count == 1 else f"{site.count} times"
        if not self.finished:
            return f"{times}, no training step"
        if not self.later_steps:
            return f"{times} in step 1"
        per_step, rest = divmod(site.count - site.in_first_step, self.later_steps)
        if self.later_steps == self.finished - 1 and not rest:
            return "every step" if per_step == 1 else f"{per_step} per step"
        return f"{times} in {site.steps} of {max(self.finished, self.last_step)} steps"


def rank_labels(report: Report) -> tuple[str, ...]:
    """Return a label for each record: its rank, and its pid if several processes had that rank."""
    ranks = [record.rank for record in report.ranks]
    return tuple(
        str(record.rank) if ranks.count(record.rank) == 1 else f"{record.rank} (pid {record.pid})"
        for record in report.ranks
    )


def source_lines(report: Report) -> tuple[SourceLine, ...]:
    """Return the source lines of all ranks, most frequent first."""
    by_line: dict[tuple[object, ...], list[tuple[RankRecord, Site]]] = {}
    for record in report.ranks:
        for site in record.sites:
            by_line.setdefault(site.key, []).append((record, site))
    found = [_merge(sites, len(report.ranks)) for sites in by_line.values()]
    return tuple(sorted(found, key=lambda line: -line.count))


def _merge(sites: list[tuple[RankRecord, Site]], records: int) -> SourceLine:
    record, largest = max(sites, key=lambda pair: pair[1].count)
    ranks = sorted({record.rank for record, _ in sites})
    who = "all ranks" if len(ranks) == records else f"rank {', '.join(map(str, ranks))}"
    return SourceLine(
        site=largest,
        who=who if records > 1 else "",
        count=sum(site.count for _, site in sites),
        bytes=sum(site.bytes for _, site in sites),
        last_step=max(site.last_step for _, site in sites),
        finished=record.steps,
    )
