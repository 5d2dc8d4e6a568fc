"""Tests of pools of ranks."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from hpu_sim.device.runtime import active_config
from hpu_testing import RankPool, SharedRankPool
from hpu_testing.rank_pool import FunctionRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_prepared: list[str] = []


def _prepare() -> None:
    _prepared.append(os.environ["LOCAL_RANK"])


def _add_up(factor: float) -> tuple[float, list[str]]:
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("hccl")
    total = torch.full((1,), factor, device="hpu")
    dist.all_reduce(total)
    return total.item(), _prepared


def _generation() -> str:
    return active_config().generation


def _fail_on_one() -> None:
    if os.environ["LOCAL_RANK"] == "1":
        raise LookupError("no such thing")
    signal.pause()


def _exit() -> None:
    os.write(1, b"last output")
    os._exit(4)


def _pid() -> int:
    return os.getpid()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRankPool]:
    """Yield a pool for the tests of this module."""
    shared = SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_prepare)
    with mock.patch.dict(os.environ, {"HPU_SIM_GENERATION": "GAUDI3"}), shared as ranks:
        yield ranks


def test_ranks_share_a_process_group(ranks: SharedRankPool) -> None:
    """Each rank has called `prepare` once and has its own device and local rank."""
    assert ranks.call(_add_up, 1.5) == [(3.0, ["0"]), (3.0, ["1"])]


def test_ranks_are_kept_between_tests(ranks: SharedRankPool) -> None:
    """The second call uses the process group of the first."""
    assert ranks.call(_add_up, 2.0) == [(4.0, ["0"]), (4.0, ["1"])]


def test_environment_configures_the_machine_of_the_ranks(ranks: SharedRankPool) -> None:
    assert ranks.call(_generation) == ["GAUDI3", "GAUDI3"]


def test_failure_names_the_rank_and_discards_the_pool(ranks: SharedRankPool) -> None:
    """The call does not wait for the other ranks, which may wait for the failed one."""
    before = ranks.call(_pid)
    with pytest.raises(AssertionError, match=r"rank 1: (?s:.*)LookupError: no such thing(?s:.*)rank 0 timed out"):
        ranks.call(_fail_on_one)

    assert not set(before) & set(ranks.call(_pid))


def test_exited_rank_is_a_failure_with_its_log(tmp_path: Path) -> None:
    with RankPool(1, tmp_path) as ranks:
        with pytest.raises(AssertionError, match="rank 0: exited\nlog of rank 0:\nlast output"):
            ranks.call(_exit)
        with pytest.raises(AssertionError, match="rank 0: exited"):
            ranks.call(_pid)


def test_rank_that_cannot_start_raises_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_SIM_GENERATION", "GAUDI9")
    with pytest.raises(AssertionError, match="GAUDI9"), RankPool(1, tmp_path):
        pass


def test_local_function_raises() -> None:
    """Another process could not import it."""
    with pytest.raises(ValueError, match=r"`function` must be defined at module level, got '.*<lambda>'"):
        FunctionRef.from_callable(lambda: None)
