"""Tests of the faults that the ranks' reports show."""

from dataclasses import replace

import pytest

from hpu_doctor.collectives.issues import find_issues, to_json
from hpu_doctor.collectives.measurement import RankReport


def _ranks(count: int = 4, hosts: int = 1) -> list[RankReport]:
    return [
        RankReport(
            rank=rank,
            is_finished=True,
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
    assert find_issues(_ranks(hosts=2)) == ()


def test_slow_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], link_seconds={**ranks[2].link_seconds, 0: 5.0})
    (issue,) = find_issues(ranks)

    assert (issue.kind, issue.ranks) == ("slow", (0, 2))
    assert issue.message == "the link from rank 0 to rank 2 takes 5.0 times as long as the others"


def test_wrong_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], wrong_links=(1,), wrong=("all-reduce",))
    (issue,) = find_issues(ranks)

    assert (issue.kind, issue.ranks) == ("wrong", (1, 2))


def test_ranks_that_did_not_report_or_failed_are_named() -> None:
    """Those that only waited for them are not."""
    waiting = RankReport(rank=0, phases=("barrier",))
    failed = RankReport(rank=2, error="RuntimeError: no card")
    issues = find_issues([waiting, None, failed, *_ranks(1)])

    assert [issue.message for issue in issues] == [
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
    (issue,) = find_issues([RankReport(rank=rank, phases=names) for rank, names in enumerate(phases)])

    assert (issue.kind, issue.message) == ("missing", message)


@pytest.mark.parametrize(("missing", "ok"), [([], True), ([None], False)])
def test_report_is_ok_unless_a_rank_is_wrong_or_missing(missing: list[None], ok: bool) -> None:
    reports = [*_ranks(2), *missing]

    assert to_json(len(reports), 1024, reports, find_issues(reports))["ok"] is ok


def _slow_machine(count: int, hosts: int) -> list[RankReport]:
    """Return ranks of which those of the machine node-1 have slow links to other machines."""
    return [
        replace(
            rank,
            link_seconds={
                source: 40.0 if (rank.host == "node-1") is not (source * hosts // count == 1) else seconds
                for source, seconds in rank.link_seconds.items()
            },
        )
        for rank in _ranks(count, hosts)
    ]


def test_machine_with_slow_links_is_one_finding() -> None:
    """Its 384 links have one cause."""
    (issue,) = find_issues(_slow_machine(32, hosts=4))

    assert issue.ranks == tuple(range(8, 16))
    assert issue.message == ("384 links of ranks 8-15 on node-1 to other machines take 5.0 times as long as the others")


def test_slow_links_between_two_machines_are_one_finding() -> None:
    ranks = _ranks(32, hosts=4)
    slow = {0: 40.0, 1: 80.0}
    ranks[8:10] = [replace(rank, link_seconds={**rank.link_seconds, **slow}) for rank in ranks[8:10]]

    (issue,) = find_issues(ranks)

    assert issue.ranks == (0, 1, 8, 9)
    assert issue.message == "4 links from node-0 to node-1 take 5.0 to 10.0 times as long as the others"


def test_slow_ranks_of_a_machine_are_one_finding() -> None:
    ranks = [replace(rank, local_seconds=4.0 if rank.host == "node-1" else 1.0) for rank in _ranks(32, hosts=4)]

    (issue,) = find_issues(ranks)

    assert issue.message == "ranks 8-15 on node-1 compute 4.0 times as long as the others"


def test_ranks_that_fail_alike_are_one_finding() -> None:
    failed: list[RankReport | None] = [RankReport(rank=0, error="RuntimeError: no card")] * 8

    messages = [issue.message for issue in find_issues([*failed, *[None] * 8])]

    assert messages == ["ranks 8-15 did not report; see its own output", "ranks 0-7 failed: RuntimeError: no card"]
