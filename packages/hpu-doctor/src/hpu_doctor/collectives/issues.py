"""Faults that the ranks' reports on their collectives show.

A job of 1,024 ranks has a million links. Faults of one cause are one finding: those of a machine, of its ranks, or of
the links between two machines.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from hpu_doctor.collectives.measurement import ALL_REDUCE, REDUCE_SCATTER, RankReport
from hpu_doctor.name_ranges import format_ranks, number_hosts

SCHEMA: Final = 1

# A rank or link is slow if it takes so many times as long as the median of the others.
_SLOW: Final = 3.0
# A rank is at fault if so many of its links are: a slow link of one rank is no fault of the other.
_MOST: Final = 0.75

# Ranks of a link, the sending one first.
_Link = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One fault.

    Attributes:
        kind: "wrong", "slow" or "missing".
        ranks: The ranks at fault, or both ranks of a link, the sending one first.
        message: One sentence.
    """

    kind: str
    ranks: tuple[int, ...]
    message: str


def find_issues(reports: Sequence[RankReport | None]) -> tuple[Issue, ...]:
    """Return the faults that the ranks' reports show, the slow ranks and links last.

    Args:
        reports: Report of each rank; None for one that has sent none.
    """
    results = [report for report in reports if report is not None and report.is_finished]
    names = number_hosts((result.host, result.boot_id) for result in results)
    results = [replace(result, host=name) for result, name in zip(results, names, strict=True)]
    return (
        *_missing(reports),
        *_wrong(results),
        *_slow_ranks(results),
        *_slow_links(results),
    )


def to_json(
    world_size: int, size: int, reports: Sequence[RankReport | None], issues: Sequence[Issue]
) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema_version": SCHEMA,
        "world_size": world_size,
        "bytes": 4 * size,
        "ok": not any(issue.kind != "slow" for issue in issues),
        "findings": [asdict(issue) for issue in issues],
        "ranks": [asdict(report) if report is not None and report.is_finished else None for report in reports],
    }


def _missing(reports: Sequence[RankReport | None]) -> list[Issue]:
    """Return the ranks that did not finish; those that only waited for others are not named."""
    absent = [rank for rank, report in enumerate(reports) if report is None]
    failed: dict[str, list[int]] = {}
    waiting: dict[int, Sequence[str]] = {}
    for rank, report in enumerate(reports):
        if report is not None and report.error is not None:
            failed.setdefault(report.error, []).append(rank)
        elif report is not None and not report.is_finished:
            waiting[rank] = report.phases
    messages = {"did not report; see its own output": absent} if absent else {}
    messages |= {f"failed: {error}": ranks for error, ranks in failed.items()}
    if waiting and not messages:
        min_count = min(map(len, waiting.values()))
        last = [rank for rank, phases in waiting.items() if len(phases) == min_count]
        messages[f"did not finish {waiting[last[0]][-1] if min_count else 'initialization'}"] = last
    return [
        Issue(kind="missing", ranks=tuple(ranks), message=f"{format_ranks(ranks)} {message}")
        for message, ranks in messages.items()
    ]


def _wrong(results: Sequence[RankReport]) -> list[Issue]:
    """Return the ranks and links with wrong values; a collective is named if no rank or link explains it."""
    bad = {(source, r.rank) for r in results for source in (*r.wrong_links, *r.wrong_sources)}
    received = Counter(source for source, rank in bad if source != rank)
    senders = [
        r.rank
        for r in results
        if (r.rank, r.rank) in bad or (len(results) > 1 and received[r.rank] >= len(results) - 1)
    ]
    issues = []
    if senders:
        verb = "sends" if len(senders) == 1 else "send"
        message = f"{format_ranks(senders)} {verb} wrong values; every other rank received some"
        issues.append(Issue(kind="wrong", ranks=tuple(senders), message=message))
    hosts = _hosts(results)
    for links in _between_machines({link for link in bad if link[0] not in senders}, hosts):
        verb = "changes" if len(links) == 1 else "change"
        issues.append(Issue(kind="wrong", ranks=_ends(links), message=f"{_name(links, hosts)} {verb} values"))
    for name in (ALL_REDUCE, REDUCE_SCATTER):
        ranks = tuple(r.rank for r in results if name in r.wrong)
        if ranks and not bad:
            issues.append(
                Issue(kind="wrong", ranks=ranks, message=f"{name} gives wrong values on {format_ranks(ranks)}")
            )
    return issues


def _slow_ranks(results: Sequence[RankReport]) -> list[Issue]:
    times = sorted(result.local_seconds for result in results)
    slow: dict[str, dict[int, float]] = {}
    for result in results:
        median = _median_of_others(times, result.local_seconds)
        if median is not None and result.local_seconds > _SLOW * median:
            slow.setdefault(result.host, {})[result.rank] = result.local_seconds / median
    return [
        _slow(
            ranks,
            f"{format_ranks(ranks)} on {host} {'computes' if len(ranks) == 1 else 'compute'} {_times(ranks.values())}",
        )
        for host, ranks in slow.items()
    ]


def _slow_links(results: Sequence[RankReport]) -> list[Issue]:
    """Return the ranks of which most links are slow, by machine, then what is left of the slow links."""
    hosts = _hosts(results)
    slow = _find_slow_links(results, hosts)
    ranks_of: dict[str, set[int]] = {}
    for rank, host in hosts.items():
        ranks_of.setdefault(host, set()).add(rank)
    issues = []
    for inside in (False, True):
        links = {link for link in slow if (hosts[link[0]] == hosts[link[1]]) is inside}
        count = Counter(rank for link in links for rank in link)
        for host, ranks in ranks_of.items():
            possible = 2 * (len(ranks) - 1 if inside else len(hosts) - len(ranks))
            bad = {rank for rank in ranks if count[rank] > 0 and count[rank] >= _MOST * possible}
            own = [slow.pop(link) for link in sorted(links) if link in slow and not bad.isdisjoint(link)]
            if own:
                where = f"within {host}" if inside else f"on {host} to other machines"
                issues.append(_slow(sorted(bad), f"{len(own)} links of {format_ranks(bad)} {where} take {_times(own)}"))
    groups = sorted(_between_machines(slow, hosts), key=lambda links: -max(slow[link] for link in links))
    for each in groups:
        verb = "takes" if len(each) == 1 else "take"
        issues.append(_slow(_ends(each), f"{_name(each, hosts)} {verb} {_times(slow[link] for link in each)}"))
    return issues


def _find_slow_links(results: Sequence[RankReport], hosts: Mapping[int, str]) -> dict[_Link, float]:
    """Return how many times longer each slow link takes; those within and between machines are compared apart."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for result in results:
        for source, seconds in result.link_seconds.items():
            if source in hosts:
                times[hosts[source] == result.host].append(seconds)
    for each in times.values():
        each.sort()
    slow = {}
    for result in results:
        for source, seconds in result.link_seconds.items():
            if source in hosts:
                median = _median_of_others(times[hosts[source] == result.host], seconds)
                if median is not None and seconds > _SLOW * median:
                    slow[source, result.rank] = seconds / median
    return slow


def _hosts(results: Sequence[RankReport]) -> dict[int, str]:
    return {result.rank: result.host for result in results}


def _between_machines(links: Iterable[_Link], hosts: Mapping[int, str]) -> list[list[_Link]]:
    """Return links in groups of equal machines at both ends."""
    groups: dict[tuple[str, str], list[_Link]] = {}
    for source, rank in sorted(links):
        groups.setdefault((hosts.get(source, ""), hosts.get(rank, "")), []).append((source, rank))
    return list(groups.values())


def _name(links: Sequence[_Link], hosts: Mapping[int, str]) -> str:
    """Return a text for links with the same machines at both ends."""
    source, rank = links[0]
    if len(links) == 1:
        return f"the link from rank {source} to rank {rank}"
    return f"{len(links)} links from {hosts.get(source, 'a missing machine')} to {hosts[rank]}"


def _ends(links: Sequence[_Link]) -> tuple[int, ...]:
    """Return the ranks of links; of one link the sending one first."""
    return links[0] if len(links) == 1 else tuple(sorted({rank for link in links for rank in link}))


def _slow(ranks: Iterable[int], message: str) -> Issue:
    return Issue(kind="slow", ranks=tuple(ranks), message=message)


def _times(factors: Iterable[float]) -> str:
    """Return "5.0 times as long as the others", or a range."""
    factors = list(factors)
    ends = dict.fromkeys(f"{end:.1f}" for end in (min(factors), max(factors)))
    return f"{' to '.join(ends)} times as long as the others"


def _median_of_others(ordered: Sequence[float], value: float) -> float | None:
    """Return the lower median of sorted values without one of them: half of them being slow does not raise it."""
    if len(ordered) < 2:  # noqa: PLR2004 - there are no others.
        return None
    middle = (len(ordered) - 2) // 2
    return ordered[middle + (middle >= bisect_left(ordered, value))]
