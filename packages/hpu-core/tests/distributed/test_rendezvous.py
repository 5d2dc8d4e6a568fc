"""Rendezvous of ranks, for whose processes threads stand."""

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hpu_core.distributed import rendezvous as module
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.store import RendezvousConfig, open_store, put_record, try_get
from hpu_core.launcher_env import AGENT_STORE
from hpu_testing import free_port

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore
else:
    from torch.distributed import HashStore, PrefixStore, TCPStore


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No torchrun has started these tests."""
    monkeypatch.delenv(AGENT_STORE, raising=False)


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


def _config(port: int, rank: int, world_size: int, seconds: float = 60, **options: Any) -> RendezvousConfig:
    return RendezvousConfig("127.0.0.1", port, rank, world_size, timedelta(seconds=seconds), **options)


def _join(*configs: RendezvousConfig) -> list[Any]:
    """Return the result or the error of each rank."""

    def join(config: RendezvousConfig) -> Any:
        try:
            return rendezvous(config)
        except (RuntimeError, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(configs)) as pool:
        return list(pool.map(join, configs))


def _all(port: int, world_size: int) -> list[RendezvousResult]:
    return _join(*(_config(port, rank, world_size) for rank in range(world_size)))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_a_store(world_size: int, port: int) -> None:
    results = _all(port, world_size)
    results[0].store().set("key", "value")

    assert [result.store().get("key") for result in results] == [b"value"] * world_size


def test_rank_0_knows_every_other_and_these_know_rank_0(port: int) -> None:
    """If each knew every other, memory and traffic would grow with the square of the number of ranks."""
    results = _all(port, 3)

    assert [list(result.ranks) for result in results] == [[0, 1, 2], [0, 1], [0, 2]]
    assert results[2].ranks[0] == results[0].ranks[0]
    assert results[0].ranks[2] == f"rank 2 (pid {os.getpid()} on {socket.gethostname()})"


def test_keys_of_an_earlier_attempt_are_out_of_sight(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchrun's agent keeps the store when it restarts ranks, whatever the first ones left in it."""
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv(AGENT_STORE, "True")
    first = _all(port, 2)
    first[0].store().set("0", "communicator id of the first attempt")
    second = _all(port, 2)

    assert agent.port == port
    assert len({result.attempt for result in (*first, *second)}) == 2
    assert second[1].store().add("0", 1) == 1


def test_ranks_that_died_before_they_joined_are_not_counted(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of an earlier attempt has died before it wrote what it is."""
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv(AGENT_STORE, "True")
    agent.add(module._ATTEMPTS, 1)
    (alone,) = _join(_config(port, 1, 2, seconds=0.1, check=_raise_after(5)))
    results = _all(port, 2)

    assert isinstance(alone, RankFailedError)
    assert {type(result) for result in results} == {RendezvousResult}


def _raise_after(calls: int) -> Callable[[], None]:
    """Return a check that raises at the given call."""
    left = iter(range(calls))

    def check() -> None:
        if next(left, None) is None:
            raise RankFailedError("the launcher exited")

    return check


def test_a_process_may_join_again_at_the_same_endpoint(port: int) -> None:
    first = _all(port, 2)
    configs = [_config(port, rank, 2) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        second = list(pool.map(rendezvous, configs, [result.root for result in first]))

    assert second[0].attempt == second[1].attempt != first[0].attempt


@pytest.mark.parametrize(
    ("present", "missing"), [([0, 2], "rank 1"), ([0], "ranks 1, 2"), ([0, 1], "rank 2")], ids=["one", "two", "last"]
)
def test_missing_ranks_are_named_to_all(present: list[int], missing: str, port: int) -> None:
    errors = _join(*(_config(port, rank, 3, seconds=4) for rank in present))

    for error in errors:
        assert isinstance(error, RankFailedError)
        assert str(error).startswith(f"{missing} did not join at 127.0.0.1:{port} within 4 s: ")


def test_missing_ranks_in_a_row_are_named_by_the_first_and_the_last() -> None:
    assert module._enumerate([1, 2, 8, 9, 10, 15]) == "1, 2, 8-10, 15"


def test_of_many_ranks_a_few_print_that_one_is_missing() -> None:
    store = HashStore()
    module._put_outcome(store, RankFailedError("rank 9 did not join"))
    reported = []
    for rank in range(1, 33):
        with pytest.raises(RankFailedError, match="rank 9 did not join") as error:
            module._read_outcome(store, _config(1, rank, 64))
        reported.append(not error.value.is_reported)

    assert sum(reported) == 8


def test_a_missing_rank_0_is_named(port: int) -> None:
    (error,) = _join(_config(port, 1, 2, seconds=1))

    assert isinstance(error, RankFailedError)
    assert str(error).startswith(f"rank 1 found no rank 0 at 127.0.0.1:{port} within 1 s: ")
    assert "MASTER_ADDR and MASTER_PORT are the same on every machine" in str(error)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failed_check_ends_the_wait(rank: int, port: int) -> None:
    """A rank whose launcher has exited, or that has launched one that exited, does not wait for the timeout."""
    errors = _join(_config(port, rank, 3, check=_raise_after(3)), _config(port, 1 - rank, 3, seconds=1))

    assert str(errors[0]) == "the launcher exited"


@pytest.mark.parametrize(("world_size", "least"), [(2, 0.0), (4000, 1.0)])
def test_ranks_of_a_large_job_ask_the_store_less_often(
    world_size: int, least: float, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else their polls would delay rank 0, which needs the same store."""
    server = open_store(_config(port, 0, world_size), server=True)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def give_up() -> None:
        if pauses:
            raise RankFailedError("no longer needed")

    with pytest.raises(RankFailedError, match="no longer needed"):
        rendezvous(_config(port, 1, world_size, check=give_up))

    assert least <= pauses[0] <= least + 1
    del server


def test_two_processes_with_one_rank_are_refused(port: int) -> None:
    errors = _join(*(_config(port, rank, 3) for rank in (0, 1, 1)))

    assert {type(error) for error in errors} == {ValueError}
    assert all("have the same rank: NODE_RANK must differ" in str(error) for error in errors)


def test_two_processes_with_rank_0_are_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv(AGENT_STORE, "True")
    errors = _join(_config(port, 0, 2), _config(port, 0, 2))

    assert agent.port == port
    assert all("have the same rank: NODE_RANK must differ" in str(error) for error in errors)


def test_a_process_with_rank_0_is_refused_that_joined_a_moment_ago(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first learns of it by its attempt, and has that one end before it leaves."""
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)

    def begin_another_attempt() -> None:
        if agent.add(module._ATTEMPTS, 0) == 1:
            agent.add(module._ATTEMPTS, 1)

    monkeypatch.setenv(AGENT_STORE, "True")
    with pytest.raises(ValueError, match="another process have the same rank"):
        rendezvous(_config(port, 0, 2, check=begin_another_attempt))

    assert try_get(module._attempt_store(agent, 2), "outcome") is not None


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2)])
def test_different_world_sizes_are_refused(sizes: tuple[int, int], port: int) -> None:
    first, second = _join(*(_config(port, rank, size) for rank, size in enumerate(sizes)))

    assert str(first) == str(second)
    assert f"has world size {sizes[1]} and rank 0 {sizes[0]}: `devices` and `num_nodes` must be" in str(first)


def test_another_version_is_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    join = module._join

    def join_another_version(store: PrefixStore, config: RendezvousConfig, own: str) -> None:
        if config.rank == 1:
            put_record(store, "leader", {"protocol": 0, "world_size": 2})
        join(store, config, own)

    monkeypatch.setattr(module, "_join", join_another_version)
    errors = _join(*(_config(port, rank, 2) for rank in range(2)))

    assert all("another version of hpu-core" in str(error) for error in errors)


def test_rank_0_reports_a_foreign_value(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv(AGENT_STORE, "True")
    store = module._attempt_store(agent, 1)
    store.set("outcome", "not JSON")
    store.add("outcome/published", 1)
    (error,) = _join(_config(port, 0, 2))

    assert type(error) is ValueError
    assert str(error).startswith("'outcome' in the store at MASTER_PORT must be a record of this version of hpu-core")
