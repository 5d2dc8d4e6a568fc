"""Tests of the exchange of values between ranks."""

import dataclasses
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import torch
from packaging.version import Version
from torch._C._distributed_c10d import Store

from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.collectives.check import connect, gather
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


def test_missing_ranks_are_waited_for_together() -> None:
    """1,000 of them take no longer than one."""
    env = dataclasses.replace(_rank_0(), world_size=1000)
    store = mock.create_autospec(Store, instance=True)
    store.wait.side_effect = RuntimeError("wait timeout")
    store.check.side_effect = lambda keys: keys == ["value/7"]
    store.get.return_value = b"7"

    values = gather(store, env, None)

    assert values == [7 if rank == 7 else None for rank in range(1000)]
    store.wait.assert_called_once()
    store.get.assert_called_once_with("value/7")
