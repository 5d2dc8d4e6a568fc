"""Tests of pools of ranks."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from hpu_testing import RankPool, SharedRankPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


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
