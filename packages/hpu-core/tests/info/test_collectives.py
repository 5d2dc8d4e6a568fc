"""Tests of the check of collectives: its measurements on simulated devices, and its diagnosis."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from hpu_core.info._check_collectives import HCCLCommunicator
from hpu_core.info._collectives import RankReport, RankResult, diagnose, measure, to_json
from hpu_core.info._job import Job
from hpu_testing import SharedRankPool

OnRanks = Callable[..., list[Any]]
SIZE = 1024


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that runs another one on every rank."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_init_process_group) as ranks:
        yield ranks.call


def _init_process_group() -> None:
    import torch.distributed as dist

    from hpu_core import bridge

    bridge.load_hccl()
    dist.init_process_group("hccl")


def _job() -> Job:
    import torch.distributed as dist

    rank = dist.get_rank()
    return Job(rank=rank, local_rank=rank, world_size=dist.get_world_size(), address="127.0.0.1", port="1")


class _WrongSender(HCCLCommunicator):
    """A device whose sent values have one bit changed."""

    def all_gather(self, output: Any, tensor: Any) -> None:
        super().all_gather(output, tensor + 1)

    def shift(self, output: Any, tensor: Any, distance: int) -> None:
        super().shift(output, tensor + 1, distance)


class _WrongReduction(HCCLCommunicator):
    """A device that reduces wrongly."""

    def all_reduce(self, tensor: Any) -> None:
        super().all_reduce(tensor)
        tensor += 1


def _measure() -> dict[str, Any]:
    return asdict(measure(_job(), HCCLCommunicator(), SIZE))


def _measure_with_a_wrong_rank() -> dict[str, Any]:
    job = _job()
    return asdict(measure(job, _WrongSender() if job.rank == 1 else HCCLCommunicator(), SIZE))


def _measure_with_a_wrong_reduction() -> dict[str, Any]:
    job = _job()
    return asdict(measure(job, _WrongReduction() if job.rank == 1 else HCCLCommunicator(), SIZE))


def _measure_with_a_slow_rank() -> dict[str, Any]:
    """Each reading of rank 1's clock is 8 ms after the last one, that of rank 0's 1 ms."""
    job = _job()
    ticks = itertools.count(0, 0.008 if job.rank == 1 else 0.001)
    return asdict(measure(job, HCCLCommunicator(), SIZE, clock=lambda: next(ticks)))


def _phases() -> list[str]:
    entered: list[str] = []
    measure(_job(), HCCLCommunicator(), SIZE, enter=entered.append)
    return entered


def _results(values: list[dict[str, Any]]) -> list[RankReport | None]:
    return [RankReport(result=RankResult.from_json(value)) for value in values]


def _reports(ranks: list[RankResult]) -> list[RankReport | None]:
    return [RankReport(result=rank) for rank in ranks]


def test_values_are_right(on_ranks: OnRanks) -> None:
    results = on_ranks(_measure)

    assert [finding for finding in diagnose(_results(results)) if finding.kind == "wrong"] == []
    assert [list(result["link_seconds"]) for result in results] == [[1], [0]]
    assert set(results[0]["seconds"]) == {"all-reduce", "all-gather", "reduce-scatter"}


def test_wrong_rank_is_named(on_ranks: OnRanks) -> None:
    findings = [f for f in diagnose(_results(on_ranks(_measure_with_a_wrong_rank))) if f.kind == "wrong"]

    assert [(finding.ranks, "rank 1 sends wrong values" in finding.message) for finding in findings] == [((1,), True)]


def test_wrong_reduction_is_named(on_ranks: OnRanks) -> None:
    findings = [f for f in diagnose(_results(on_ranks(_measure_with_a_wrong_reduction))) if f.kind == "wrong"]

    assert [finding.message for finding in findings] == ["all-reduce gives wrong values on rank 1"]


def test_slow_rank_is_named(on_ranks: OnRanks) -> None:
    findings = diagnose(_results(on_ranks(_measure_with_a_slow_rank)))

    assert (findings[0].kind, findings[0].ranks) == ("slow", (1,))
    assert "computes 8.0 times as long as the others" in findings[0].message


def test_phases_are_entered_in_order(on_ranks: OnRanks) -> None:
    phases = ["barrier", "all-reduce", "all-gather", "reduce-scatter", "send and receive at distance 1"]

    assert on_ranks(_phases) == [phases, phases]


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
    assert diagnose(_reports(_ranks(hosts=2))) == ()


def test_slow_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], link_seconds={**ranks[2].link_seconds, 0: 5.0})
    (finding,) = diagnose(_reports(ranks))

    assert (finding.kind, finding.ranks) == ("slow", (0, 2))
    assert finding.message == "the link from rank 0 to rank 2 takes 5.0 times as long as the others"


def test_rank_with_slow_links_is_named() -> None:
    ranks = _ranks()
    slow = [
        replace(r, link_seconds={s: 9.0 if 3 in {s, r.rank} else t for s, t in r.link_seconds.items()}) for r in ranks
    ]
    (finding,) = diagnose(_reports(slow))

    assert finding.message == "every link of rank 3 on node-0 is slow"


def test_wrong_link_is_named() -> None:
    ranks = _ranks()
    ranks[2] = replace(ranks[2], wrong_links=(1,), wrong=("all-reduce",))
    (finding,) = diagnose(_reports(ranks))

    assert (finding.kind, finding.ranks) == ("wrong", (1, 2))


def test_ranks_that_did_not_report_or_failed_are_named() -> None:
    """Those that only waited for them are not."""
    waiting = RankReport(phases=("barrier",))
    failed = RankReport(error="RuntimeError: no card")
    findings = diagnose([waiting, None, failed, *_reports(_ranks(1))])

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
    (finding,) = diagnose([RankReport(phases=names) for names in phases])

    assert (finding.kind, finding.message) == ("missing", message)


@pytest.mark.parametrize(("missing", "ok"), [([], True), ([None], False)])
def test_report_is_ok_unless_a_rank_is_wrong_or_missing(missing: list[None], ok: bool) -> None:
    reports = [*_reports(_ranks(2)), *missing]
    job = Job(rank=0, local_rank=0, world_size=len(reports), address="node-0", port="1")

    assert to_json(job, SIZE, reports, diagnose(reports))["ok"] is ok
