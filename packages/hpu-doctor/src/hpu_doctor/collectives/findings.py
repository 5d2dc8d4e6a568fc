"""Faults that the ranks' reports on their collectives show."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hpu_doctor.collectives.measurement import ALL_REDUCE, REDUCE_SCATTER, RankReport, RankResult
from hpu_doctor.rank_store import format_ranks

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault.

    Attributes:
        kind: "wrong", "slow" or "missing".
        ranks: The rank at fault, or both ranks of a link, the sending one first.
        message: One sentence.
    """

    kind: str
    ranks: tuple[int, ...]
    message: str


def find_faults(reports: Sequence[RankReport | None], *, slow_factor: float = 3.0) -> tuple[Finding, ...]:
    """Return the faults that the ranks' reports show, the slow ranks and links last.

    Args:
        reports: Report of each rank; None for one that has sent none.
        slow_factor: Report ranks or links this many times slower than the median.
    """
    results = [report.result for report in reports if report is not None and report.result is not None]
    return (
        *_missing(reports),
        *_wrong(results),
        *_slow_ranks(results, slow_factor),
        *_slow_links(results, slow_factor),
    )


def to_json(
    world_size: int, size: int, reports: Sequence[RankReport | None], findings: Sequence[Finding]
) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema": SCHEMA,
        "world_size": world_size,
        "bytes": 4 * size,
        "ok": not any(finding.kind != "slow" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
        "ranks": [None if report is None or report.result is None else asdict(report.result) for report in reports],
    }


def _missing(reports: Sequence[RankReport | None]) -> list[Finding]:
    """Return the ranks that did not finish; those that only waited for others are not named."""
    findings = []
    waiting: dict[int, tuple[str, ...]] = {}
    for rank, report in enumerate(reports):
        if report is None:
            message = f"rank {rank} did not report; see its own output"
        elif report.error is not None:
            message = f"rank {rank} failed: {report.error}"
        else:
            if report.result is None:
                waiting[rank] = report.phases
            continue
        findings.append(Finding(kind="missing", ranks=(rank,), message=message))
    if waiting and not findings:
        fewest = min(map(len, waiting.values()))
        last = tuple(rank for rank, phases in waiting.items() if len(phases) == fewest)
        phase = waiting[last[0]][-1] if fewest else "initialization"
        findings.append(Finding(kind="missing", ranks=last, message=f"{format_ranks(last)} did not finish {phase}"))
    return findings


def _wrong(results: Sequence[RankResult]) -> list[Finding]:
    """Return the ranks and links with wrong values; a collective is named if no rank or link explains it."""
    bad = {(source, r.rank) for r in results for source in (*r.wrong_links, *r.wrong_sources)}
    senders = [
        r.rank
        for r in results
        if (r.rank, r.rank) in bad or (len(results) > 1 and all((r.rank, o.rank) in bad for o in results if o is not r))
    ]
    rest = {(source, rank) for source, rank in bad if source not in senders}
    findings = [
        Finding(kind="wrong", ranks=(rank,), message=f"rank {rank} sends wrong values; every other rank received some")
        for rank in senders
    ]
    findings += [
        Finding(
            kind="wrong", ranks=(source, rank), message=f"the link from rank {source} to rank {rank} changes values"
        )
        for source, rank in sorted(rest)
    ]
    for name in (ALL_REDUCE, REDUCE_SCATTER):
        ranks = tuple(r.rank for r in results if name in r.wrong)
        if ranks and not bad:
            findings.append(
                Finding(kind="wrong", ranks=ranks, message=f"{name} gives wrong values on {format_ranks(ranks)}")
            )
    return findings


def _slow_ranks(results: Sequence[RankResult], factor: float) -> list[Finding]:
    findings = []
    for result in results:
        usual = _median([other.local_seconds for other in results if other is not result])
        if usual is not None and result.local_seconds > factor * usual:
            findings.append(
                Finding(
                    kind="slow",
                    ranks=(result.rank,),
                    message=f"rank {result.rank} on {result.host} computes {result.local_seconds / usual:.1f} times as "
                    "long as the others",
                )
            )
    return findings


def _slow_links(results: Sequence[RankResult], factor: float) -> list[Finding]:
    """Return the slow links; links within a machine and between machines are compared among themselves."""
    hosts = {result.rank: result.host for result in results}
    links = {(source, r.rank): time for r in results for source, time in r.link_seconds.items() if source in hosts}
    slow: dict[tuple[int, int], float] = {}
    for (source, rank), duration in links.items():
        same_kind = [
            other
            for (s, r), other in links.items()
            if (s, r) != (source, rank) and (hosts[s] == hosts[r]) == (hosts[source] == hosts[rank])
        ]
        usual = _median(same_kind)
        if usual is not None and duration > factor * usual:
            slow[source, rank] = duration / usual
    findings = []
    for result in results:
        own = {link for link in links if result.rank in link}
        # With two ranks, both links are those of both ranks.
        if len(results) > 2 and own <= slow.keys():  # noqa: PLR2004 - see above.
            message = f"every link of rank {result.rank} on {result.host} is slow"
            findings.append(Finding(kind="slow", ranks=(result.rank,), message=message))
            slow = {link: times for link, times in slow.items() if link not in own}
    findings += [
        Finding(
            kind="slow",
            ranks=link,
            message=f"the link from rank {link[0]} to rank {link[1]} takes {times:.1f} times as long as the others",
        )
        for link, times in sorted(slow.items())
    ]
    return findings


def _median(values: Sequence[float]) -> float | None:
    """Return the lower median, which half of the values being slow does not raise."""
    return sorted(values)[(len(values) - 1) // 2] if values else None
