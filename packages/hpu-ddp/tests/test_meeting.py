"""Ranks that find each other, or do not: threads stand for their processes."""

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hpu_ddp import _meeting
from hpu_ddp._meeting import Meeting, Rendezvous, meet
from hpu_ddp.errors import RankFailedError
from hpu_sim.testing import free_port

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore, TCPStore
else:
    from torch.distributed import HashStore, TCPStore


@pytest.fixture(autouse=True)
def _first_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread is at its first meeting, as every process would be."""
    monkeypatch.setattr(_meeting, "_meetings", itertools.repeat(0))
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)


@pytest.fixture
def port() -> int:
    """A port that nobody listens at."""
    return free_port()


@pytest.fixture
def held() -> Iterator[list[Meeting]]:
    """What has come of meetings, which part at the end of the test."""
    held: list[Meeting] = []
    yield held
    for meeting in held:
        if meeting.watch is not None:
            meeting.watch._take_leave()


def _rendezvous(port: int, rank: int, world_size: int, seconds: float = 30) -> Rendezvous:
    return Rendezvous("127.0.0.1", port, rank, world_size, timedelta(seconds=seconds))


def _outcomes(*ranks: Rendezvous) -> list[Any]:
    """Have ranks meet, and return what came of it for each: a meeting or an error."""

    def outcome(rendezvous: Rendezvous) -> Any:
        try:
            return meet(rendezvous)
        except (RankFailedError, RuntimeError, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(outcome, ranks))


@pytest.mark.parametrize("world_size", [2, 4])
def test_all_ranks_meet(world_size: int, port: int, held: list[Meeting]) -> None:
    """They share a store, and watch each other."""
    held += _outcomes(*(_rendezvous(port, rank, world_size) for rank in range(world_size)))
    held[0].store.set("key", "value")

    assert [meeting.store.get("key") for meeting in held] == [b"value"] * world_size
    assert all(meeting.watch is not None for meeting in held)


def test_a_rank_alone_waits_for_nobody(port: int) -> None:
    """It has a store for its process group, and nobody to watch."""
    (meeting,) = _outcomes(_rendezvous(port, 0, 1))

    assert isinstance(meeting.store, TCPStore)
    assert meeting.watch is None


@pytest.mark.parametrize(
    ("present", "missing"), [([0, 2], "rank 1"), ([0], "ranks 1, 2"), ([0, 1], "rank 2")], ids=["one", "two", "last"]
)
def test_missing_ranks_are_named_to_all(present: list[int], missing: str, port: int) -> None:
    """Whoever is there learns at the same time who is not, and where they were waited for."""
    outcomes = _outcomes(*(_rendezvous(port, rank, 3, seconds=1) for rank in present))

    for error in outcomes:
        assert isinstance(error, RankFailedError)
        assert str(error).startswith(f"{missing} did not come to 127.0.0.1, port {port} within 1 s: ")


def test_a_rank_that_comes_at_the_last_moment_is_there() -> None:
    """The clock has run out between its coming and its saying that all have come."""
    store = HashStore()
    store.add("rank/1/claims", 1)

    assert _meeting._await(store, _rendezvous(0, 0, 2, 0.01)) is None


def test_a_missing_rank_0_is_named(port: int) -> None:
    """Without it there is nothing to meet at; the error says what must be the same on every machine."""
    (error,) = _outcomes(_rendezvous(port, 1, 2, seconds=1))

    assert isinstance(error, RankFailedError)
    assert str(error).startswith(f"rank 1 has not found rank 0 at 127.0.0.1, port {port} within 1 s: ")
    assert "MASTER_ADDR and MASTER_PORT are the same on every machine" in str(error)


def test_two_of_a_rank_are_refused(port: int) -> None:
    """As where two machines have the same NODE_RANK; all ranks hear of it, and none waits any longer."""
    outcomes = _outcomes(*(_rendezvous(port, rank, 3) for rank in (0, 1, 1)))

    assert all(isinstance(error, ValueError | RankFailedError) for error in outcomes)
    assert {str(error).partition(" (")[0] for error in outcomes} == {"rank 1"}
    assert all("is not the only rank 1: see that NODE_RANK differs" in str(error) for error in outcomes)


@pytest.mark.parametrize("counts", [(2, 4), (4, 2)])
def test_different_counts_are_refused(counts: tuple[int, int], port: int) -> None:
    """As where two machines have another number of devices; all ranks hear of it, and none waits any longer."""
    outcomes = _outcomes(*(_rendezvous(port, rank, count) for rank, count in enumerate(counts)))

    first, second = (str(error) for error in outcomes)
    assert first == second
    assert " processes and another rank " in first
    assert first.endswith(": `devices` and `num_nodes` must be the same on every machine")


def test_a_port_that_is_taken_is_said(port: int) -> None:
    """Rank 0 cannot wait there, and says what to change."""
    other = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)

    (error,) = _outcomes(_rendezvous(port, 0, 2, seconds=1))

    assert other.port == port
    assert type(error) is RuntimeError
    assert f"rank 0 cannot wait for the others at 127.0.0.1, port {port}: " in str(error)
    assert "MASTER_PORT must be free" in str(error)


def test_ranks_meet_at_torchruns_store(port: int, held: list[Meeting], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torchrun's agent holds a store, rank 0 opens none of its own."""
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    held += _outcomes(*(_rendezvous(port, rank, 2) for rank in range(2)))
    agent.set("key", "value")

    assert [meeting.store.get("key") for meeting in held] == [b"value"] * 2


def test_restarted_ranks_meet_anew(port: int, held: list[Meeting], monkeypatch: pytest.MonkeyPatch) -> None:
    """After torchrun has started all again, what the first ranks left in its store is of no account."""
    agent = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    for attempt in range(2):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        held += _outcomes(*(_rendezvous(port, rank, 2) for rank in range(2)))

    assert agent.port == port
    assert [type(meeting) for meeting in held] == [Meeting] * 4


def test_a_rank_knows_where_it_runs() -> None:
    """For errors, and so that others of its machine can end it."""
    identity = _meeting.identify(3)

    assert (identity.rank, identity.pid) == (3, os.getpid())
    assert str(identity) == f"rank 3 (process {os.getpid()} on {identity.host})"


def test_ranks_of_one_machine_know_it() -> None:
    """Two of them have the machine in common."""
    assert _meeting.identify(0).machine == _meeting.identify(1).machine
