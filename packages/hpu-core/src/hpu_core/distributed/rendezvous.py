"""Rendezvous: every rank of the job joins under one attempt id, or learns which rank is missing.

Everything goes through the store at MASTER_PORT: rank 0's TCPStore, or the one of torchrun's agent. That store may
outlive an attempt (torchrun restarts ranks, a program destroys its process group and makes another), so it can hold
keys of ranks that are gone. Rank 0 therefore makes a new attempt id, offers it to whoever has joined, and counts only
those that acknowledge it; process group and watchdog use the store under that id alone.
"""

import contextlib
import ipaddress
import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from packaging.version import Version

from hpu_core.distributed.connections import own_endpoints
from hpu_core.distributed.environment import AGENT_STORE
from hpu_core.distributed.failure_detection import RankFailedError, RankInfo

if TYPE_CHECKING:
    from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
else:
    # Public here, but not for type checkers.
    from torch.distributed import PrefixStore, Store, TCPStore

__all__ = [
    "RendezvousConfig",
    "RendezvousResult",
    "invalid_entry",
    "is_refused",
    "open_store",
    "publish",
    "rendezvous",
    "try_get",
]

# Version of what ranks write to the store; raised when a reader of the last one could misread it.
PROTOCOL: Final = 1

# How long rank 0 keeps the store open for the present ranks to read a failure.
_ACK_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.02
# How much longer than its timeout the store's constructor may take: an interpreter that exits while the constructor
# raises in another thread aborts.
_CONNECT_GRACE: Final = 10.0
# How long a host may take to refuse a connection.
_REFUSAL_TIMEOUT: Final = 1.0
_BASE: Final = "hpu_core/rendezvous"
# More than ranks of many restarts append to a log; a larger count is not one of this package.
_MAX_ENTRIES: Final = 100_000
_MAX_QUOTED: Final = 80
# As torch's own listener.
_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True)
class RendezvousConfig:
    """Endpoint of the store, and this process's part in the job.

    Attributes:
        host: Address of the store, MASTER_ADDR.
        port: Port of the store, MASTER_PORT.
        rank: Global rank.
        local_rank: Rank on this host.
        world_size: Number of ranks.
        timeout: How long ranks wait for each other.
        check: Raises when it makes no sense to wait any longer, such as after the exit of a launched rank.
    """

    host: str
    port: int
    rank: int
    local_rank: int
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


@dataclass(frozen=True, slots=True)
class RendezvousResult:
    """Outcome of a rendezvous that every rank has joined.

    Attributes:
        config: What this rank joined with.
        root: Connection to the store; closing the last one of rank 0 closes the store.
        attempt: Id of the attempt, the same on every rank.
        ranks: Every rank, in order.
        connections: Local endpoints, "address:port", of `root`.
    """

    config: RendezvousConfig
    root: "TCPStore"
    attempt: str
    ranks: tuple[RankInfo, ...]
    connections: tuple[str, ...]

    def store(self, connection: "Store | None" = None) -> "Store":
        """Return the store under the prefix of this attempt; over `root` when no connection is given."""
        return PrefixStore(f"hpu_core/{self.attempt}", self.root if connection is None else connection)


def rendezvous(config: RendezvousConfig, root: "TCPStore | None" = None) -> RendezvousResult:
    """Join the job and wait for every other rank.

    Args:
        config: Endpoint and rank.
        root: Connection to the store of an earlier rendezvous at the same endpoint; a new one when not given.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        RuntimeError: Rank 0 cannot open the store.
        ValueError: Two processes have the same rank, ranks disagree about the world size, or something else than this
            version of hpu-core wrote to the store.
    """
    root = open_store(config, server=config.hosts_store) if root is None else root
    own = RankInfo(config.rank, config.local_rank, socket.gethostname(), os.getpid())
    try:
        attempt, ranks = _lead(root, config, own) if config.rank == 0 else _follow(root, config, own)
    except RuntimeError as error:
        if isinstance(error, RankFailedError):
            raise
        config.check()
        raise RankFailedError(f"rank 0 exited during rendezvous at {config.endpoint}: see its own error") from error
    return RendezvousResult(config, root, attempt, ranks, tuple(own_endpoints(config.port)))


def open_store(config: RendezvousConfig, *, server: bool) -> "TCPStore":
    """Connect to the store, and with `server` open it first.

    Raises:
        RankFailedError: There is no store at the endpoint within the timeout.
        RuntimeError: The store cannot be opened.
    """
    seconds = config.timeout.total_seconds()
    # In a thread, because the constructor blocks forever where something else listens at the port.
    outcome: queue.SimpleQueue[TCPStore | Exception] = queue.SimpleQueue()
    threading.Thread(target=_connect, args=(config, server, outcome), name="hpu-store-connect", daemon=True).start()
    deadline = time.monotonic() + seconds + _CONNECT_GRACE
    store: TCPStore | Exception = TimeoutError("the store did not answer")
    while time.monotonic() < deadline:
        config.check()
        with contextlib.suppress(queue.Empty):
            store = outcome.get(timeout=1)
            break
    if not isinstance(store, Exception):
        return store
    # The rest is a trace of C++.
    reason = str(store).splitlines()[0].rstrip(".")
    if server:
        raise RuntimeError(
            f"rank 0 cannot open the store at {config.endpoint}: {reason}. MASTER_PORT must be free on the machine of "
            "rank 0, and MASTER_ADDR must be that machine"
        ) from store
    raise RankFailedError(
        f"rank {config.rank} found no rank 0 at {config.endpoint} within {seconds:g} s: {reason}. Check that rank 0 "
        "runs there, and that MASTER_ADDR and MASTER_PORT are the same on every machine"
    ) from store


def is_refused(config: RendezvousConfig) -> bool:
    """Return whether the host of the store answers that nothing listens at its port, which a lost network does not."""
    try:
        socket.create_connection((config.host, config.port), timeout=_REFUSAL_TIMEOUT).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def publish(store: "Store", key: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object that `try_get` reads."""
    store.set(key, json.dumps(value))
    store.add(f"{key}/count", 1)


def try_get(store: "Store", key: str) -> tuple[int, dict[str, Any]] | None:
    """Return how often a key was published and its last value; None if never. Does not block.

    The count stands in for `Store.check`, which Python cannot call on torch 2.0.

    Raises:
        ValueError: The value is not a JSON object.
    """
    count = store.add(f"{key}/count", 0)
    if not count:
        return None
    value = store.get(key)
    try:
        record = json.loads(value)
    # A deeply nested value exceeds Python's limit.
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise invalid_entry(key, value)
    return count, record


def invalid_entry(key: str, value: object) -> ValueError:
    """Return the error for a value that this version of hpu-core does not write."""
    quoted = repr(value)
    quoted = quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]}..."
    return ValueError(
        f"{key!r} in the store at MASTER_PORT must be a record of this version of hpu-core, got {quoted}: install the "
        "same version on every machine, and choose a MASTER_PORT that no other program uses"
    )


def _connect(config: RendezvousConfig, server: bool, outcome: "queue.SimpleQueue[TCPStore | Exception]") -> None:
    options: dict[str, Any] = {"timeout": config.timeout, "wait_for_workers": False, "multi_tenant": True}
    listener = _loopback_listener(config) if server else None
    if listener is not None:
        options["master_listen_fd"] = listener.detach()
        # torch's default server from 2.4 on; that of 2.7 refuses a socket, and that of 2.13 takes one.
        if Version("2.4.dev0") <= Version(torch.__version__) < Version("2.13.dev0"):
            options["use_libuv"] = False
    try:
        outcome.put(TCPStore(config.host, config.port, config.world_size, is_master=server, **options))
    # torch 2.0 raises a TimeoutError.
    except (RuntimeError, TimeoutError) as error:
        outcome.put(error)


def _loopback_listener(config: RendezvousConfig) -> socket.socket | None:
    """Return a socket that listens on the loopback interface if MASTER_ADDR names it; None otherwise.

    torch listens on all interfaces, also for a job that no other machine can join.
    """
    try:
        # A name other than this one may be the loopback here and this machine's address elsewhere.
        if config.host == "localhost" or ipaddress.ip_address(config.host).is_loopback:
            family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
            return socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG)
    # Not an address, or a port that is taken, which torch reports.
    except (OSError, ValueError):
        pass
    return None


def _lead(root: "Store", config: RendezvousConfig, own: RankInfo) -> tuple[str, tuple[RankInfo, ...]]:
    """Offer a new attempt id to the ranks that join, until every rank has acknowledged it."""
    base, attempt = PrefixStore(_BASE, root), secrets.token_hex(8)
    store = PrefixStore(f"hpu_core/{attempt}", root)
    _append(base, "join", _record(own, attempt, config))
    members: dict[int, RankInfo] = {0: own}
    joined: set[int] = set()
    acknowledged: set[int] = set()
    deadline = time.monotonic() + config.timeout.total_seconds()
    error: Exception | None = None
    while error is None and len(members) < config.world_size:
        try:
            _offer(base, attempt, joined)
            for record in _new_entries(store, "ack", acknowledged):
                _admit(members, record, config)
            if try_get(base, f"offer/{attempt}") is not None:
                rule = "NODE_RANK must differ from machine to machine"
                raise ValueError(f"{own} and another process have rank 0: {rule}")  # noqa: TRY301 - published below.
        except ValueError as invalid:
            error = invalid
        error = error or _join_error(members, config, deadline)
        time.sleep(_POLL_INTERVAL)
    ranks = tuple(members[rank] for rank in sorted(members))
    outcome = {"error": None if error is None else str(error), "is_value_error": isinstance(error, ValueError)}
    publish(store, "outcome", outcome | {"ranks": [asdict(rank) for rank in ranks]})
    if error is not None:
        _wait_for_readers(store, len(acknowledged))
        raise error
    return attempt, ranks


def _offer(base: "Store", attempt: str, joined: set[int]) -> None:
    """Offer the attempt to the processes that have joined since the last call."""
    for record in _new_entries(base, "join", joined):
        match record:
            case {"nonce": str(nonce)}:
                if nonce != attempt:
                    publish(base, f"offer/{nonce}", {"attempt": attempt})
            case _:
                raise invalid_entry("join", record)


def _follow(root: "Store", config: RendezvousConfig, own: RankInfo) -> tuple[str, tuple[RankInfo, ...]]:
    """Acknowledge rank 0's attempt id, and wait for the outcome."""
    base, nonce = PrefixStore(_BASE, root), secrets.token_hex(8)
    _append(base, "join", _record(own, nonce, config))
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * config.timeout.total_seconds() + _ACK_TIMEOUT
    offers, attempt = 0, ""
    while time.monotonic() < deadline:
        config.check()
        offer = try_get(base, f"offer/{nonce}")
        if offer is not None and offer[0] > offers:
            offers, attempt = offer[0], offer[1].get("attempt", "")
            if not isinstance(attempt, str):
                raise invalid_entry(f"offer/{nonce}", offer[1])
            _append(PrefixStore(f"hpu_core/{attempt}", root), "ack", _record(own, nonce, config))
        store = PrefixStore(f"hpu_core/{attempt}", root)
        outcome = try_get(store, "outcome") if attempt else None
        if outcome is not None:
            store.add("outcome_read", 1)
            return attempt, _ranks_of(outcome[1], config.world_size)
        time.sleep(_POLL_INTERVAL)
    raise RankFailedError(
        f"rank 0 did not join at {config.endpoint} within {config.timeout.total_seconds():g} s: check that it runs, "
        "and that every machine has the same version of hpu-core"
    )


def _record(own: RankInfo, nonce: str, config: RendezvousConfig) -> dict[str, Any]:
    return {"protocol": PROTOCOL, "nonce": nonce, "world_size": config.world_size, "rank": asdict(own)}


def _append(store: "Store", log: str, record: Mapping[str, Any]) -> None:
    publish(store, f"{log}/{store.add(log, 1)}", record)


def _new_entries(store: "Store", log: str, seen: set[int]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log that are not in `seen`, and add them; a writer may have died before its entry."""
    count = store.add(log, 0)
    if count > _MAX_ENTRIES:
        raise invalid_entry(log, count)
    for index in set(range(1, count + 1)) - seen:
        entry = try_get(store, f"{log}/{index}")
        if entry is not None:
            seen.add(index)
            yield entry[1]


def _admit(members: dict[int, RankInfo], record: Mapping[str, Any], config: RendezvousConfig) -> None:
    """Add a process that has acknowledged the attempt.

    Raises:
        ValueError: It cannot be one of the ranks.
    """
    if record.get("protocol") != PROTOCOL:
        match record:
            case {"rank": {"rank": int(rank), "host": str(host)}}:
                process = f"rank {rank} on {host}"
            case _:
                process = "a process that joined"
        raise ValueError(f"{process} runs another version of hpu-core than rank 0: install the same on every machine")
    info = _parse_rank(record.get("rank"))
    if record.get("world_size") != config.world_size:
        raise ValueError(
            f"{info} has world size {record.get('world_size')} and rank 0 {config.world_size}: `devices` and "
            "`num_nodes` must be the same on every machine"
        )
    if not 0 <= info.rank < config.world_size:
        raise ValueError(f"{info} has a rank that must be below the world size {config.world_size}: correct NODE_RANK")
    if info.rank in members:
        raise ValueError(
            f"{members[info.rank]} and {info} have the same rank: NODE_RANK must differ from machine to machine"
        )
    members[info.rank] = info


def _parse_rank(record: object) -> RankInfo:
    match record:
        case {"rank": int(rank), "local_rank": int(local_rank), "host": str(host), "pid": int(pid)}:
            return RankInfo(rank, local_rank, host, pid)
    raise invalid_entry("rank", record)


def _join_error(members: Mapping[int, RankInfo], config: RendezvousConfig, deadline: float) -> Exception | None:
    """Return why it makes no sense to wait for further ranks; None while it does."""
    try:
        config.check()
    except RankFailedError as error:
        return error
    if len(members) == config.world_size or time.monotonic() < deadline:
        return None
    missing = [str(rank) for rank in range(config.world_size) if rank not in members]
    return RankFailedError(
        f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)} did not join at {config.endpoint} within "
        f"{config.timeout.total_seconds():g} s: check whether they run, and their errors if not"
    )


def _wait_for_readers(store: "Store", present: int) -> None:
    """Keep the store open until every present rank has read the outcome."""
    deadline = time.monotonic() + _ACK_TIMEOUT
    while time.monotonic() < deadline and store.add("outcome_read", 0) < present:
        time.sleep(_POLL_INTERVAL)


def _ranks_of(outcome: Mapping[str, Any], world_size: int) -> tuple[RankInfo, ...]:
    match outcome:
        case {"error": str(error), "is_value_error": bool(is_value_error)}:
            raise (ValueError if is_value_error else RankFailedError)(error)
        case {"error": None, "ranks": [*records]}:
            ranks = tuple(_parse_rank(record) for record in records)
            if [info.rank for info in ranks] == list(range(world_size)):
                return ranks
    raise invalid_entry("outcome", outcome)
