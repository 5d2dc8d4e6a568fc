"""Tests of the exchange of values between ranks."""

import dataclasses
from datetime import timedelta
from unittest import mock

from torch.distributed import Store  # type: ignore[attr-defined] # Public, but not for type checkers.

from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.collectives.check import connect, gather
from hpu_testing import free_port


def _rank_0() -> LauncherEnv:
    return LauncherEnv(
        launcher="torchrun", rank=0, local_rank=0, world_size=2, address="127.0.0.1", port=str(free_port())
    )


def test_rank_that_sends_nothing_has_no_value() -> None:
    env = _rank_0()
    store = connect(env, timedelta(seconds=1))

    assert gather(store, env, {"a": 1}) == [{"a": 1}, None]


def test_missing_ranks_are_waited_for_together() -> None:
    """1,000 of them take no longer than one."""
    env = dataclasses.replace(_rank_0(), world_size=1000)
    store = mock.create_autospec(Store, instance=True)
    store.wait.side_effect = RuntimeError("wait timeout")
    store.compare_set.side_effect = lambda key, expected, _: b"7" if key == "value/7" else expected.encode()

    values = gather(store, env, None)

    assert values == [7 if rank == 7 else None for rank in range(1000)]
    store.wait.assert_called_once()
    store.get.assert_not_called()
