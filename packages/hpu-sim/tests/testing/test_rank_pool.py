"""Functions that ranks call together."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from hpu_sim.runtime import active_config
from hpu_sim.testing import RankPool, SharedRankPool
from hpu_sim.testing.rank_pool import FunctionRef

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


def _end() -> None:
    os.write(1, b"a last word")
    os._exit(4)


def _process() -> int:
    return os.getpid()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRankPool]:
    """Ranks for the tests of this module."""
    shared = SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_prepare)
    with mock.patch.dict(os.environ, {"HPU_SIM_GENERATION": "GAUDI3"}), shared as ranks:
        yield ranks


def test_ranks_share_a_training(ranks: SharedRankPool) -> None:
    """Each has called what prepares it, once, and has a card and a place of its own."""
    assert ranks.call(_add_up, 1.5) == [(3.0, ["0"]), (3.0, ["1"])]


def test_ranks_are_kept_between_tests(ranks: SharedRankPool) -> None:
    """A second call finds the process group of the first."""
    assert ranks.call(_add_up, 2.0) == [(4.0, ["0"]), (4.0, ["1"])]


def test_ranks_have_the_cards_that_the_environment_names(ranks: SharedRankPool) -> None:
    """As every simulated machine that a variable describes."""
    assert ranks.call(_generation) == ["GAUDI3", "GAUDI3"]


def test_a_failure_names_its_rank_and_ends_all(ranks: SharedRankPool) -> None:
    """The others, which wait for it, are not waited for; the next test gets new ranks."""
    before = ranks.call(_process)
    with pytest.raises(
        AssertionError, match=r"rank 1: (?s:.*)LookupError: no such thing(?s:.*)rank 0 has not answered"
    ):
        ranks.call(_fail_on_one)

    assert not set(before) & set(ranks.call(_process))


def test_a_rank_that_ends_is_a_failure(tmp_path: Path) -> None:
    """What it wrote is shown."""
    with RankPool(1, tmp_path) as ranks:
        with pytest.raises(AssertionError, match="rank 0: has ended\nrank 0 wrote:\na last word"):
            ranks.call(_end)
        with pytest.raises(AssertionError, match="rank 0: has ended"):
            ranks.call(_process)


def test_a_rank_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the simulator refuses is the text of the error."""
    monkeypatch.setenv("HPU_SIM_GENERATION", "GAUDI9")
    with pytest.raises(AssertionError, match="GAUDI9"), RankPool(1, tmp_path):
        pass


def test_a_local_function_is_refused() -> None:
    """Another process could not import it."""
    with pytest.raises(ValueError, match=r"a rank can call functions of module level only, got '.*<lambda>'"):
        FunctionRef.from_callable(lambda: None)
