"""Store of the job at MASTER_PORT, rank 0's TCPStore or that of torchrun's agent, and the JSON objects in it."""

import contextlib
import ctypes
import ipaddress
import json
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from packaging.version import Version

from hpu_core.distributed import _torch_2_0
from hpu_core.distributed.errors import RankFailedError
from hpu_core.launcher_env import AGENT_STORE

if TYPE_CHECKING:
    from torch._C import _distributed_c10d as _c10d
else:
    # The names are public here, but not for type checkers.
    from torch import distributed as _c10d

PrefixStore: TypeAlias = _c10d.PrefixStore
Store: TypeAlias = _c10d.Store
TCPStore: TypeAlias = _c10d.TCPStore

CPP_LOG_LEVEL: Final = "FLAGS_caffe2_log_level"
"""Global variable of torch's with the level of its C++ log; a test looks for it in every torch."""
_WARNING: Final = 1
_FATAL: Final = 3

# Timeout of an attempt to connect. torch's client takes twice as long, and longer if a program that took the connection
# ends without an answer: an interpreter that exits while the constructor raises in another thread aborts.
_ATTEMPT: Final = timedelta(seconds=1)
_ATTEMPT_MARGIN: Final = 5.0
_POLL_INTERVAL: Final = 0.05
# How long a host may take to refuse a connection.
_REFUSAL_TIMEOUT: Final = 1.0
_MAX_QUOTED: Final = 80
# As torch's own listener.
_BACKLOG: Final = 2048
# Ranks of a job that print the failure of another one.
_MAX_REPORTS: Final = 16
# Connections of a rank to the store: the process group's, and the guard's. The rest is for all else that is open.
_FILES_PER_RANK: Final = 2
_OTHER_FILES: Final = 512


@dataclass(frozen=True, slots=True)
class RendezvousConfig:
    """Endpoint of the store, and this process's part in the job.

    Attributes:
        host: Address of the store, MASTER_ADDR.
        port: Port of the store, MASTER_PORT.
        rank: Global rank.
        world_size: Number of ranks.
        timeout: How long ranks wait for each other.
        check: Raises when it makes no sense to wait any longer, such as after the exit of a launched rank.
    """

    host: str
    port: int
    rank: int
    world_size: int
    timeout: timedelta
    check: Callable[[], None] = field(default=lambda: None)

    @property
    def endpoint(self) -> str:
        """Address and port: "10.0.0.1:29500"."""
        return f"{self.host}:{self.port}"

    @property
    def hosts_store(self) -> bool:
        """Whether this process keeps the store."""
        return self.rank == 0 and os.environ.get(AGENT_STORE) != "True"

    @property
    def reports(self) -> bool:
        """Whether this rank is one of the few that print what all ranks learn, so that it is a page of thousands."""
        return self.rank % -(-self.world_size // _MAX_REPORTS) == 0


def open_store(config: RendezvousConfig, *, server: bool) -> TCPStore:
    """Connect to the store, and with `server` open it first.

    Raises:
        RankFailedError: There is no store at the endpoint within the timeout.
        RuntimeError: The store cannot be opened.
    """
    if server:
        _allow_files(_FILES_PER_RANK * config.world_size + _OTHER_FILES)
    deadline = time.monotonic() + config.timeout.total_seconds()
    while True:
        # First: a thread still connecting at exit can abort the interpreter.
        config.check()
        try:
            if not server:
                socket.create_connection((config.host, config.port), _REFUSAL_TIMEOUT).close()
            return _connect(config, server, deadline)
        except (OSError, RuntimeError) as error:
            # The rest is a trace of C++.
            reason = str(error).splitlines()[0].rstrip(".")
            if server:
                raise RuntimeError(
                    f"rank 0 cannot open the store at {config.endpoint}: {reason}. MASTER_PORT must be free on the "
                    "machine of rank 0, and MASTER_ADDR must be that machine"
                ) from error
            if time.monotonic() > deadline:
                raise RankFailedError(
                    f"rank {config.rank} found no rank 0 at {config.endpoint} within "
                    f"{config.timeout.total_seconds():g} s: {reason}. Check that rank 0 runs there, and that "
                    "MASTER_ADDR and MASTER_PORT are the same on every machine"
                ) from error
        time.sleep(_POLL_INTERVAL)


def is_refused(config: RendezvousConfig) -> bool:
    """Return whether the host of the store answers that nothing listens at its port, which a lost network does not."""
    try:
        socket.create_connection((config.host, config.port), timeout=_REFUSAL_TIMEOUT).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def put_record(store: Store, key: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object that `try_get` reads."""
    store.set(key, json.dumps(value))
    store.add(f"{key}/published", 1)


def try_get(store: Store, key: str) -> dict[str, Any] | None:
    """Return the last value that was published under a key, None if none was, without waiting for one.

    A counter stands in for `Store.check`, which Python cannot call on torch 2.0.

    Raises:
        ValueError: The value is not a JSON object.
    """
    if not store.add(f"{key}/published", 0):
        return None
    value = store.get(key)
    # A deeply nested value exceeds Python's limit.
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(value)
        if isinstance(record, dict):
            return record
    raise ValueError(
        f"{key!r} in the store at MASTER_PORT must be a record of this version of hpu-core, got "
        f"{value[:_MAX_QUOTED]!r}: install the same version on every machine, and choose a MASTER_PORT that no other "
        "program uses"
    )


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Print nothing of torch's C++ code meanwhile, unless TORCH_CPP_LOG_LEVEL asks for another level than the default.

    torch's store prints a trace of 26 lines of each request and connection that fails. It raises an error as well.
    """
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(torch._C.__file__), CPP_LOG_LEVEL)  # noqa: SLF001 - torch's library.
    except (OSError, ValueError):
        level = ctypes.c_int()
    before = level.value
    level.value = _FATAL if before == _WARNING else before
    try:
        yield
    finally:
        level.value = before


def _allow_files(count: int) -> None:
    """Raise the limit of open files as far as this process may: many systems have 1024, and the store would hang."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard)
        )


def _connect(config: RendezvousConfig, server: bool, deadline: float) -> TCPStore:
    """Return the store; in a thread, because the constructor blocks forever where something else listens."""
    outcome: queue.SimpleQueue[TCPStore | Exception] = queue.SimpleQueue()
    timeout = config.timeout if server else min(config.timeout, _ATTEMPT)
    # torch 2.0 counts whole seconds.
    timeout = max(timeout, timedelta(seconds=1)) if _torch_2_0.IS_TORCH_2_0 else timeout

    def construct() -> None:
        options: dict[str, Any] = {"timeout": timeout, "wait_for_workers": False, "multi_tenant": True}
        try:
            if server and not _torch_2_0.IS_TORCH_2_0:
                options.update(_listen_on_loopback(config))
            store = TCPStore(config.host, config.port, config.world_size, is_master=server, **options)
            if not server:
                # The constructor of older torch (2.4) does not wait for an answer.
                store.add("hpu_core/connections", 0)
            outcome.put(store)
        # torch 2.0 raises a TimeoutError.
        except (RuntimeError, TimeoutError) as error:
            outcome.put(error)

    threading.Thread(target=construct, name="hpu-store-connect", daemon=True).start()
    while time.monotonic() < deadline + _ATTEMPT_MARGIN:
        config.check()
        with contextlib.suppress(queue.Empty):
            store = outcome.get(timeout=1)
            if isinstance(store, Exception):
                raise store
            store.set_timeout(config.timeout)
            return store
    raise TimeoutError("the store did not answer")


def _listen_on_loopback(config: RendezvousConfig) -> dict[str, Any]:
    """Listen on the loopback interface if MASTER_ADDR names it, and return the socket as an option of the store.

    torch listens on all interfaces, also for a job that no other machine can join.
    """
    try:
        # A name other than this one may be the loopback here and this machine's address elsewhere.
        if config.host != "localhost" and not ipaddress.ip_address(config.host).is_loopback:
            return {}
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listener = socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG)
    # Not an address, or a port that is taken, which torch reports.
    except (OSError, ValueError):
        return {}
    # torch's default server from 2.4 on; that of 2.7 refuses a socket, and that of 2.13 takes one.
    refuses_socket = Version("2.4.dev0") <= Version(torch.__version__) < Version("2.13.dev0")
    return {"master_listen_fd": listener.detach(), **({"use_libuv": False} if refuses_socket else {})}
