"""Exchanges of two ranks in this process, one step at a time."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from hpu_core.distributed import heartbeat_exchange as module
from hpu_core.distributed._torch_2_0 import IS_TORCH_2_0
from hpu_core.distributed.connections import peer_endpoints
from hpu_core.distributed.failure_detection import Heartbeat, Progress, RankFailure
from hpu_core.distributed.heartbeat_exchange import HeartbeatExchange
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.launcher_env import AGENT_STORE
from hpu_testing import free_port

from .jobs import broken_store, join


class Rank:
    """One rank that trains.

    Attributes:
        exchange: Its exchange.
        heartbeat: Its last heartbeat.
    """

    def __init__(self, job: RendezvousResult) -> None:
        self.exchange = HeartbeatExchange(job, LaunchedRanks())
        self.heartbeat = Heartbeat(run=1, training=True)
        self.exchange.connect()

    def step(self, **progress: Any) -> RankFailure | None:
        """Exchange heartbeats once."""
        self.heartbeat = replace(self.heartbeat, beat=self.heartbeat.beat + 1, **progress)
        self.exchange.update_exits()
        return self.exchange.exchange(self.heartbeat, None)

    def age(self, seconds: float) -> None:
        """Have all that this rank observed be older."""
        for state in self.exchange.ranks.values():
            state.last_heartbeat_time -= seconds
            state.last_progress_time -= seconds


@pytest.fixture(autouse=True)
def _no_threads_remain() -> Iterator[None]:
    """Wait for torch's clients, which end by their own timeout."""
    yield
    for thread in threading.enumerate():
        if thread.name == "hpu-store-connect":
            thread.join(60)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[Rank]:
    """Two ranks that have read each other's first heartbeats."""
    monkeypatch.delenv(AGENT_STORE, raising=False)
    ranks = [Rank(job) for job in join(2, 60)]
    for rank in [*ranks, *ranks]:
        rank.step()
    return ranks


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """The kernel's table of connections to the store; a test may change it."""
    table: mock.Mock = mock.create_autospec(peer_endpoints, side_effect=peer_endpoints)
    monkeypatch.setattr(module, "peer_endpoints", table)
    return table


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_connections_are_closed_is_dead(rank: int, peers: mock.Mock, ranks: list[Rank]) -> None:
    """The kernel closes the connections of a process that died, and its heartbeats end."""
    peers.side_effect = lambda _: set()
    ranks[1 - rank].age(10)
    ranks[1 - rank].exchange.update_exits()

    assert ranks[1 - rank].exchange.ranks[rank].exit_reason == "its connections are closed"


def test_a_silent_rank_with_open_connections_is_not_dead(ranks: list[Rank]) -> None:
    ranks[0].age(10)
    ranks[0].exchange.update_exits()

    assert ranks[0].exchange.ranks[1].exit_reason is None


def test_connections_are_not_read_while_heartbeats_arrive(peers: mock.Mock, ranks: list[Rank]) -> None:
    """The kernel searches all of its table, which takes milliseconds on every rank."""
    peers.reset_mock()
    for rank in ranks:
        rank.step()

    peers.assert_not_called()


def test_connections_are_read_once_where_the_store_is_on_another_host(
    peers: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection of this host ends at its port there."""
    monkeypatch.delenv(AGENT_STORE, raising=False)
    peers.side_effect = lambda _: set()
    _, follower = ranks = [Rank(job) for job in join(2, 60)]
    for rank in [*ranks, *ranks]:
        rank.step()
    peers.reset_mock()
    follower.age(10)
    follower.step()

    peers.assert_not_called()


def test_the_first_failure_stays(ranks: list[Rank]) -> None:
    first = RankFailure("rank 1 exited", 1)
    ranks[1].step(error="ValueError: no such luck")
    ranks[0].exchange.exchange(replace(ranks[0].heartbeat, beat=9), first)

    assert ranks[1].step() == first


def test_a_record_of_an_earlier_training_is_not_read(ranks: list[Rank]) -> None:
    ranks[0].exchange.exchange(replace(ranks[0].heartbeat, beat=9), RankFailure("rank 1 exited", 1))

    assert ranks[1].step(run=2) is None


def test_a_broken_connection_to_a_living_rank_0_is_replaced(ranks: list[Rank]) -> None:
    follower, before = ranks[1], time.monotonic()
    follower.exchange._connection = broken_store()
    failure = follower.exchange.reconnect(lambda: follower.heartbeat)
    follower.step()

    assert failure is None
    assert follower.exchange.last_exchange_time > before


def _reconnect_in_backward(rank: Rank) -> RankFailure | None:
    """Connect anew to a port where nothing listens, on a rank that waits in a collective."""
    rank.step(progress=Progress(moves=1, scope=3, batch=1, stage=2))
    rank.age(10)
    exchange = rank.exchange
    exchange._job = replace(exchange._job, config=replace(exchange._job.config, port=free_port()))
    return exchange.reconnect(lambda: rank.heartbeat)


def test_a_rank_that_waits_learns_that_the_store_closed(ranks: list[Rank]) -> None:
    failure = _reconnect_in_backward(ranks[1])

    assert failure is not None
    assert failure.message.endswith("its store closed")


def test_a_rank_0_that_exits_while_its_store_is_connected_anew_is_named(
    ranks: list[Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process closes its connections one by one, and may still listen when the first one is closed."""
    listening = iter([False])
    monkeypatch.setattr(module, "is_refused", lambda _: next(listening, True))
    failure = _reconnect_in_backward(ranks[1])

    assert failure is not None
    assert failure.message.endswith("its store closed")


class _CountedStore:
    """Store that counts its requests."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.requests: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.requests.append(name)
        return getattr(self._store, name)


def _requests(ranks: list[Rank]) -> list[list[str]]:
    """Return the requests of each rank in one healthy interval."""
    stores = []
    for rank in ranks:
        store: Any = _CountedStore(rank.exchange._store)
        rank.exchange._connection = store
        stores.append(store)
        rank.step(progress=Progress(moves=7))
    return [store.requests for store in stores]


@pytest.mark.skipif(IS_TORCH_2_0, reason="Requires: torch 2.1, whose store reads several keys in a request")
@pytest.mark.parametrize("world_size", [2, 6])
def test_requests_of_a_rank_do_not_grow_with_the_job(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGENT_STORE, raising=False)
    ranks = [Rank(job) for job in join(world_size, 60)]
    for rank in [*ranks, *ranks]:
        rank.step()
    leader, *others = _requests(ranks)

    assert leader == ["multi_get", "add"]
    assert others == [["set", "add"]] * (world_size - 1)


def test_news_of_rank_0_are_read_once(ranks: list[Rank]) -> None:
    ranks[0].step(signals=[15])
    follower = ranks[1]
    with mock.patch.object(follower.exchange, "read", wraps=follower.exchange.read) as read:
        for _ in range(2):
            follower.step()

    assert [call.args for call in read.call_args_list] == [(0,), ()]
    assert follower.exchange.leader.is_signalled


def test_a_rank_that_knows_the_failure_waits_for_no_answer(ranks: list[Rank]) -> None:
    """Others have yet to get theirs. Its heartbeats go on: it may finish what it does."""
    leader, follower = ranks
    failure = RankFailure("rank 0 failed: ValueError", 0)
    leader.exchange.exchange(leader.heartbeat, failure)
    assert follower.step() == failure
    store: Any = _CountedStore(follower.exchange._store)
    follower.exchange._connection = store

    assert follower.step() == failure
    assert store.requests == ["set"]


def test_a_rank_that_does_not_wait_needs_no_store(ranks: list[Rank]) -> None:
    """Rank 0 may have finished."""
    follower = ranks[1]
    exchange = follower.exchange
    exchange._job = replace(exchange._job, config=replace(exchange._job.config, port=free_port()))

    assert exchange.reconnect(lambda: follower.heartbeat) is None
