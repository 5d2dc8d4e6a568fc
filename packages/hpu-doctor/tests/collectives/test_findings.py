"""Tests of the faults that the ranks' reports show."""

from dataclasses import replace

import pytest

from hpu_doctor.collectives.findings import find_faults, to_json
from hpu_doctor.collectives.measurement import RankReport, RankResult


def _reports(ranks: list[RankResult]) -> list[RankReport | None]:
    return [RankReport(result=rank) for rank in ranks]


def _ranks(count: int = 4, hosts: int = 1) -> list[RankResult]:
    return [
        RankResult(
            rank=rank,
            host=f"node-{rank * hosts // count}",
            local_seconds=1.0,
            link_seconds={
                other: 1.0 if other * hosts // count == rank * hosts // count else 8.0
                for other in range(count)
                if other != rank
            },
        )
        for rank in range(count)
    ]


def test_links_between_machines_are_slower() -> None:
    """They are compared among themselves."""
    assert find_faults(_reports(_ranks(hosts=2))) == ()


def test_slow_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], link_seconds={**ranks[2].link_seconds, 0: 5.0})
    (finding,) = find_faults(_reports(ranks))

    assert (finding.kind, finding.ranks) == ("slow", (0, 2))
    assert finding.message == "the link from rank 0 to rank 2 takes 5.0 times as long as the others"


def test_rank_with_slow_links_is_named() -> None:
    ranks = _ranks()
    slow = [
        replace(r, link_seconds={s: 9.0 if 3 in {s, r.rank} else t for s, t in r.link_seconds.items()}) for r in ranks
    ]
    (finding,) = find_faults(_reports(slow))

    assert finding.message == "every link of rank 3 on node-0 is slow"


def test_wrong_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], wrong_links=(1,), wrong=("all-reduce",))
    (finding,) = find_faults(_reports(ranks))

    assert (finding.kind, finding.ranks) == ("wrong", (1, 2))


def test_ranks_that_did_not_report_or_failed_are_named() -> None:
    """Those that only waited for them are not."""
    waiting = RankReport(phases=("barrier",))
    failed = RankReport(error="RuntimeError: no card")
    findings = find_faults([waiting, None, failed, *_reports(_ranks(1))])

    assert [finding.message for finding in findings] == [
        "rank 1 did not report; see its own output",
        "rank 2 failed: RuntimeError: no card",
    ]


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([("barrier", "all-reduce"), ("barrier",), ("barrier", "all-reduce")], "rank 1 did not finish barrier"),
        ([("barrier",), ("barrier",)], "ranks 0, 1 did not finish barrier"),
        ([(), ("barrier",)], "rank 0 did not finish initialization"),
    ],
)
def test_rank_behind_the_others_is_named(phases: list[tuple[str, ...]], message: str) -> None:
    (finding,) = find_faults([RankReport(phases=names) for names in phases])

    assert (finding.kind, finding.message) == ("missing", message)


@pytest.mark.parametrize(("missing", "ok"), [([], True), ([None], False)])
def test_report_is_ok_unless_a_rank_is_wrong_or_missing(missing: list[None], ok: bool) -> None:
    reports = [*_reports(_ranks(2)), *missing]

    assert to_json(len(reports), 1024, reports, find_faults(reports))["ok"] is ok
