"""Tests of the measurement of collectives, on simulated devices."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.collectives.issues import find_issues
from hpu_doctor.collectives.measurement import HCCLGroup, RankReport, measure
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


def _env() -> LauncherEnv:
    import torch.distributed as dist

    rank = dist.get_rank()
    size = dist.get_world_size()
    return LauncherEnv(launcher="torchrun", rank=rank, local_rank=rank, world_size=size, address="127.0.0.1", port="1")


class _WrongSender(HCCLGroup):
    """A device whose sent values have one bit changed."""

    def all_gather(self, output: Any, tensor: Any) -> None:
        super().all_gather(output, tensor + 1)

    def shift(self, output: Any, tensor: Any, distance: int) -> None:
        super().shift(output, tensor + 1, distance)


class _WrongReduction(HCCLGroup):
    """A device that reduces wrongly."""

    def all_reduce(self, tensor: Any) -> None:
        super().all_reduce(tensor)
        tensor += 1


_WRONG = {"sends": _WrongSender, "reduces": _WrongReduction}


def _measure(wrong: str = "") -> dict[str, Any]:
    """Measure; rank 1 is wrong in some way."""
    env = _env()
    group = _WRONG[wrong]() if wrong and env.rank == 1 else HCCLGroup()
    return asdict(measure(env, group, SIZE, str))


def _results(values: list[dict[str, Any]]) -> list[RankReport | None]:
    return [RankReport.from_json(value) for value in values]


def test_values_are_right(on_ranks: OnRanks) -> None:
    results = on_ranks(_measure)

    assert [issue for issue in find_issues(_results(results)) if issue.kind == "wrong"] == []
    assert [list(result["link_seconds"]) for result in results] == [[1], [0]]
    assert set(results[0]["seconds"]) == {"all-reduce", "all-gather", "reduce-scatter"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("sends", "rank 1 sends wrong values"), ("reduces", "all-reduce gives wrong values on rank 1")],
)
def test_wrong_rank_is_named(wrong: str, message: str, on_ranks: OnRanks) -> None:
    issues = [each for each in find_issues(_results(on_ranks(_measure, wrong))) if each.kind == "wrong"]

    assert [message in issue.message for issue in issues] == [True]
