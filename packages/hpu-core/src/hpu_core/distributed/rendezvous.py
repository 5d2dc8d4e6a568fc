"""Rendezvous: every rank of the job joins under one attempt id, or learns which rank is missing.

The job's store may outlive an attempt (torchrun restarts ranks, a program destroys its process group and makes
another), so it can hold keys of ranks that are gone. Rank 0 therefore makes a new attempt id, offers it to whoever has
joined, and counts only those that acknowledge it; process group and watchdog use the store under that id alone.
"""

import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_core.distributed.connections import own_endpoints
from hpu_core.distributed.failure_detection import RankFailedError, RankInfo
from hpu_core.distributed.store import RendezvousConfig, invalid_entry, open_store, publish, try_get

if TYPE_CHECKING:
    from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
else:
    # Public here, but not for type checkers.
    from torch.distributed import PrefixStore, Store, TCPStore

__all__ = ["RendezvousResult", "rendezvous"]

# Version of what ranks write to the store; raised when a reader of the last one could misread it.
PROTOCOL: Final = 1

# How long rank 0 keeps the store open for the present ranks to read a failure.
_ACK_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.02
# Polls per second of all waiting ranks together, which must not delay rank 0's own requests to the store.
_MAX_POLL_RATE: Final = 2000
_BASE: Final = "hpu_core/rendezvous"
# More than ranks of many restarts append to a log; a larger count is not one of this package.
_MAX_ENTRIES: Final = 100_000


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
        attempt, ranks = _join_as_leader(root, config, own) if config.rank == 0 else _join_leader(root, config, own)
    except RuntimeError as error:
        if isinstance(error, RankFailedError):
            raise
        config.check()
        raise RankFailedError(f"rank 0 exited during rendezvous at {config.endpoint}: see its own error") from error
    return RendezvousResult(config, root, attempt, ranks, tuple(own_endpoints(config.port)))


def _join_as_leader(root: "Store", config: RendezvousConfig, own: RankInfo) -> tuple[str, tuple[RankInfo, ...]]:
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
                # The process that made it may have joined since.
                _offer(base, attempt, joined)
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


def _join_leader(root: "Store", config: RendezvousConfig, own: RankInfo) -> tuple[str, tuple[RankInfo, ...]]:
    """Acknowledge rank 0's attempt id, and wait for the outcome."""
    base, nonce = PrefixStore(_BASE, root), secrets.token_hex(8)
    _append(base, "join", _record(own, nonce, config))
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * config.timeout.total_seconds() + _ACK_TIMEOUT
    interval = max(_POLL_INTERVAL, config.world_size / _MAX_POLL_RATE)
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
        time.sleep(interval)
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
