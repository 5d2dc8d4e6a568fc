"""Tests of the exchange of values between ranks."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.rank_store import connect, format_ranks, gather
from hpu_testing import free_port


def _rank_0() -> LauncherEnv:
    return LauncherEnv(
        launcher="torchrun", rank=0, local_rank=0, world_size=2, address="127.0.0.1", port=str(free_port())
    )


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.1.dev0"), reason="Requires: torch 2.1, whose store takes a listening socket"
)
def test_store_on_the_loopback_is_out_of_reach_for_other_machines() -> None:
    env = _rank_0()
    store = connect(env, timedelta(seconds=10))

    table = "".join(Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    listening = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
    assert f"0100007F:{int(env.port):04X}" in listening
    assert [each for each in listening if each.endswith(f":{int(env.port):04X}")] == [f"0100007F:{int(env.port):04X}"]
    del store


def test_rank_that_sends_nothing_has_no_value() -> None:
    env = _rank_0()
    store = connect(env, timedelta(seconds=1))

    assert gather(store, env, {"a": 1}) == [{"a": 1}, None]


@pytest.mark.parametrize(("ranks", "expected"), [([3], "rank 3"), ([1, 3], "ranks 1, 3")])
def test_format_ranks(ranks: list[int], expected: str) -> None:
    assert format_ranks(ranks) == expected
