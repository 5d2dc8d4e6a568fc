"""Rendezvous of ranks, for whose processes threads stand."""

import resource
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from hpu_core.distributed import processes
from hpu_core.distributed import rendezvous as module
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.rendezvous import Job, connect, join, open_store, read, set_first
from hpu_core.launcher_env import AGENT_STORE
from hpu_testing import free_port

from .jobs import make_job, serve


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No torchrun has started these tests."""
    monkeypatch.delenv(AGENT_STORE, raising=False)


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


def _join(*jobs: Job) -> list[Any]:
    """Return the result or the error of each rank."""

    def enter(job: Job) -> Any:
        try:
            return join(job, job.timeout)
        except (RuntimeError, ValueError) as error:
            return error

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(enter, jobs))


def _all(port: int, world_size: int) -> list[Job]:
    return _join(*(make_job(rank, world_size, port=port) for rank in range(world_size)))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_a_store(world_size: int, port: int) -> None:
    jobs = _all(port, world_size)
    jobs[0].store().set("key", "value")

    assert [job.store().get("key") for job in jobs] == [b"value"] * world_size


def test_keys_of_an_earlier_attempt_are_out_of_sight(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchrun's agent keeps the store when it restarts ranks, whatever the first ones left in it."""
    agent = serve(port)
    monkeypatch.setenv(AGENT_STORE, "True")
    first = _all(port, 2)
    first[0].store().set("0", "communicator id of the first attempt")
    second = _all(port, 2)

    assert agent.port == port
    assert len({job.attempt for job in (*first, *second)}) == 2
    assert second[1].store().add("0", 1) == 1


def test_ranks_that_died_before_they_joined_are_not_counted(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = serve(port)
    monkeypatch.setenv(AGENT_STORE, "True")
    agent.add(module._ATTEMPTS, 1)
    (alone,) = _join(make_job(1, port=port, seconds=0.1))
    jobs = _all(port, 2)

    assert isinstance(alone, RankFailedError)
    assert {type(job) for job in jobs} == {Job}


def test_a_process_may_join_again_at_the_same_endpoint(port: int) -> None:
    first = _all(port, 2)
    second = _all(port, 2)

    assert second[0].attempt == second[1].attempt != first[0].attempt


def test_missing_ranks_are_named_to_all() -> None:
    """Of two processes with one rank, one is in the place of another. Three jobs wait at the same time."""
    cases = [([0, 2], "rank 1"), ([0], "ranks 1, 2"), ([0, 1, 1], "rank 2")]
    ports = [free_port() for _ in cases]
    jobs = [
        make_job(rank, 3, seconds=4, port=port)
        for port, (present, _) in zip(ports, cases, strict=True)
        for rank in present
    ]
    missing = [
        f"{names} did not join at 127.0.0.1:{port} within 4 s: "
        for port, (present, names) in zip(ports, cases, strict=True)
        for _ in present
    ]

    errors = _join(*jobs)

    assert {type(error) for error in errors} == {RankFailedError}
    assert [str(error).partition("check")[0] for error in errors] == missing


def test_a_missing_rank_0_is_named(port: int) -> None:
    (error,) = _join(make_job(1, seconds=1, port=port))

    assert isinstance(error, RankFailedError)
    assert str(error).startswith(f"rank 1 found no rank 0 at 127.0.0.1:{port} within 1 s: ")
    assert "MASTER_ADDR and MASTER_PORT are the same on every machine" in str(error)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_exit_of_a_process_around_a_rank_ends_its_wait(
    rank: int, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(port) if rank else None
    monkeypatch.setattr(processes, "exits", lambda first: {first + 2: "exit code 1"})
    (error,) = _join(make_job(rank, 3, port=port))

    assert str(error) == "rank 2 exited before it joined: exit code 1. See its own error"
    del server


def test_rank_0_reports_a_port_that_is_taken(port: int) -> None:
    other = serve(port)
    message = rf"rank 0 cannot open the store at 127\.0\.0\.1:{port}: .*MASTER_PORT must be free"
    with pytest.raises(RuntimeError, match=message) as error:
        open_store(make_job(port=port), timedelta(seconds=9))

    assert other.port == port
    assert error.type is RuntimeError


def test_a_closed_port_refuses_a_connection(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(make_job(1, port=port))


def test_the_first_value_of_a_key_stays(port: int) -> None:
    store = serve(port)

    assert [set_first(store, "key", value) for value in "ab"] == ["a", "a"]
    assert read(store, ["key", "key"]) == [b"a", b"a"]


@pytest.mark.parametrize(("world_size", "limits"), [(100, []), (2000, [(4000, 4000)])])
def test_the_limit_of_open_files_is_raised_for_many_ranks(
    world_size: int, limits: list[Any], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: found.append(limit))
    open_store(make_job(0, world_size, port=port), timedelta(seconds=9))

    assert found == limits
