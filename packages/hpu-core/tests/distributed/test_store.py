"""Store of the job: where it listens, which errors it raises, and what is read from it."""

import ctypes
import resource
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from hpu_core.distributed import store as module
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.store import RendezvousConfig, open_store, put_record, try_get
from hpu_testing import free_port

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore
else:
    from torch.distributed import HashStore, PrefixStore, TCPStore


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


_takes_socket = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.1.dev0"), reason="Requires: torch 2.1, whose store takes a socket"
)


def _config(port: int, rank: int = 0, seconds: float = 60) -> RendezvousConfig:
    return RendezvousConfig("127.0.0.1", port, rank, 2, timedelta(seconds=seconds))


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.1.dev0"),
    reason="Requires: torch 2.1; the store of 2.0 aborts the process when a server closes",
)
def test_another_server_at_the_port_is_no_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's client waits forever for the answer of a server that is not a store."""
    monkeypatch.setattr(module, "_ATTEMPT_MARGIN", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = _config(server.getsockname()[1], rank=1, seconds=1)
        with pytest.raises(RankFailedError, match="found no rank 0"):
            open_store(config, server=False)


def test_a_check_that_fails_starts_no_connection(port: int) -> None:
    """A thread that connects on may abort the interpreter when it exits."""

    def refuse() -> None:
        raise ConnectionRefusedError

    config = replace(_config(port, rank=1), check=refuse)
    threads = set(threading.enumerate())

    with pytest.raises(ConnectionRefusedError):
        open_store(config, server=False)

    assert set(threading.enumerate()) <= threads


def test_rank_0_reports_a_port_that_is_taken(port: int) -> None:
    other = TCPStore("127.0.0.1", port, 1, is_master=True, wait_for_workers=False)
    message = rf"rank 0 cannot open the store at 127\.0\.0\.1:{port}: .*MASTER_PORT must be free"
    with pytest.raises(RuntimeError, match=message) as error:
        open_store(_config(port, seconds=1), server=True)

    assert other.port == port
    assert error.type is RuntimeError


@_takes_socket
@pytest.mark.parametrize(
    ("version", "expected"), [("2.3.1", None), ("2.4.0", False), ("2.7.1+cpu", False), ("2.13.0", None)]
)
def test_a_store_with_its_own_socket_avoids_the_server_that_refuses_it(
    version: str, expected: bool | None, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From torch 2.4 on, the default server is libuv's."""
    found: dict[str, Any] = {}

    def make_store(*_: Any, **options: Any) -> HashStore:
        found.update(options)
        socket.close(options["master_listen_fd"])
        return HashStore()

    monkeypatch.setattr(module, "TCPStore", make_store)
    monkeypatch.setattr(torch, "__version__", version)
    open_store(_config(port), server=True)

    assert found.get("use_libuv") is expected


@_takes_socket
def test_a_store_of_one_machine_listens_on_the_loopback_interface(port: int) -> None:
    store = open_store(_config(port), server=True)

    assert store.port == port
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))


def test_a_store_of_several_machines_listens_on_all_interfaces(port: int) -> None:
    """The address of rank 0's machine may be that of a gateway, which cannot be bound here."""
    store = open_store(replace(_config(port), host=socket.gethostname()), server=True)

    assert store.port == port
    socket.create_connection(("127.0.0.2", port)).close()


@pytest.fixture
def listener() -> Iterator[int]:
    """A port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_store_waits_for_the_whole_timeout(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to it waits for a part, and starts again."""
    limits: list[timedelta] = []

    def make_store(*_: Any, timeout: timedelta, **__: Any) -> HashStore:
        limits.append(timeout)
        return HashStore()

    monkeypatch.setattr(module, "TCPStore", make_store)
    with mock.patch.object(HashStore, "set_timeout") as set_timeout:
        open_store(_config(listener, seconds=30), server=False)

    assert limits == [timedelta(seconds=1)]
    set_timeout.assert_called_once_with(timedelta(seconds=30))


def test_no_attempt_outlives_the_timeout(listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's client takes up to twice its timeout, and a thread that still connects at exit may abort the process."""
    limits: list[float] = []

    def time_out(*_: Any, timeout: timedelta, **__: Any) -> None:
        limits.append(timeout.total_seconds())
        threading.Event().wait(limits[-1])
        raise RuntimeError("timed out")

    monkeypatch.setattr(module, "_ATTEMPT", timedelta(seconds=0.2))
    monkeypatch.setattr(module, "TCPStore", time_out)
    with pytest.raises(RankFailedError, match="found no rank 0"):
        open_store(_config(listener, seconds=1), server=False)

    assert len(limits) > 1
    assert {*limits} == {0.2}


def test_a_lost_network_is_not_a_closed_store(port: int, listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.is_refused(_config(port))
    assert not module.is_refused(_config(listener))
    monkeypatch.setattr(socket, "create_connection", mock.Mock(side_effect=TimeoutError))
    assert not module.is_refused(_config(port))


def test_a_store_that_breaks_prints_no_trace(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Torch prints one of 26 lines for each request that fails, on every rank when rank 0 dies."""
    server = open_store(_config(port), server=True)
    client = open_store(_config(port, rank=1), server=False)
    del server
    with module.quiet_logs(), pytest.raises(RuntimeError):
        client.get("key")

    assert capfd.readouterr().err == ""


def test_torch_has_the_level_of_its_log() -> None:
    level = ctypes.c_int.in_dll(ctypes.CDLL(torch._C.__file__), module.CPP_LOG_LEVEL)
    before = level.value
    with module.quiet_logs():
        assert level.value == (3 if before == 1 else before)

    assert level.value == before


def test_rank_0_may_open_two_connections_for_each_rank(port: int) -> None:
    """Many systems allow 1024 open files, unless a process asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    try:
        open_store(replace(_config(port), world_size=1000), server=True)

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(2512, hard), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("world_size", "reporters"), [(2, 2), (16, 16), (17, 9), (4096, 16)])
def test_a_few_ranks_print_what_all_learn(world_size: int, reporters: int, port: int) -> None:
    configs = [replace(_config(port, rank), world_size=world_size) for rank in range(world_size)]

    assert configs[0].reports
    assert sum(config.reports for config in configs) == reporters


def test_a_key_that_was_never_published_is_none() -> None:
    assert try_get(HashStore(), "key") is None


def test_a_published_key_has_its_last_value() -> None:
    store = PrefixStore("prefix", HashStore())
    put_record(store, "key", {"value": 1})
    put_record(store, "key", {"value": 2})

    assert try_get(store, "key") == {"value": 2}


# Values that a program other than this version of hpu-core could write.
_FOREIGN = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"[]", b"1", b"null", b"[" * 100_000, b"\x80\x04cposix\nsystem\n.", b'{"run": "x"}']),
)


def _put(store: Any, key: str, value: bytes) -> None:
    store.set(key, value)
    store.add(f"{key}/published", 1)


@given(value=_FOREIGN)
def test_a_foreign_value_is_an_object_or_an_error(value: bytes) -> None:
    """The value is parsed as JSON and never unpickled."""
    store = HashStore()
    _put(store, "key", value)
    with mock.patch("pickle.loads", side_effect=AssertionError), mock.patch("pickle.load", side_effect=AssertionError):
        try:
            entry = try_get(store, "key")
        except ValueError as error:
            start = "'key' in the store at MASTER_PORT must be a record of this version"
            assert str(error).startswith(start)  # noqa: PT017 - either outcome is right.
        else:
            assert isinstance(entry, dict)
