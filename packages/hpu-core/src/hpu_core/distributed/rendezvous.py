"""Rendezvous: every rank joins the same attempt, or learns which rank is missing.

The job's store may outlive an attempt (torchrun restarts ranks, a program destroys its process group and makes
another), so it can hold keys of ranks that are gone. Rank 0 therefore numbers the attempts, and process group and
watchdog use the store under that number alone. The others join the last attempt that has no outcome, and the next one
as soon as there is one.

`torch.distributed.elastic.utils.store.barrier` does not fit: it needs a key that is new in the store, waits although a
launched rank has exited, and names the missing ranks on rank 0 only.
"""

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hpu_core.distributed import cpp_log
from hpu_core.distributed.connections import own_connections, shut_down
from hpu_core.distributed.failure_detection import Heartbeat, RankFailedError, RankInfo
from hpu_core.distributed.store import (
    CONNECT_THREAD,
    PrefixStore,
    RendezvousConfig,
    Store,
    TCPStore,
    invalid_entry,
    open_store,
    publish,
    try_get,
)

# Version of what ranks write to the store; raised when a reader of the last one could misread it.
PROTOCOL: Final = 3

# How long rank 0 keeps the store open for the present ranks to read a failure.
_ACK_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.02
# Polls per second of all waiting ranks together, which must not delay rank 0's own requests to the store.
_MAX_POLL_RATE: Final = 2000
# More entries than any job writes.
_MAX_ENTRIES: Final = 100_000
_ATTEMPTS: Final = "hpu_core/attempts"


@dataclass(frozen=True, slots=True)
class RendezvousResult:
    """Outcome of a rendezvous that every rank has joined.

    Attributes:
        config: What this rank joined with.
        root: Connection to the store; closing the last one of rank 0 closes the store.
        attempt: Number of the attempt, the same on every rank.
        ranks: Every rank on rank 0, in order; rank 0 and itself on the others, which need to know no more.
        heartbeat: Progress of this rank, which outlives a watchdog.
    """

    config: RendezvousConfig
    root: TCPStore
    attempt: int
    ranks: Mapping[int, RankInfo]
    heartbeat: Heartbeat = field(default_factory=Heartbeat)

    def store(self, connection: Store | None = None) -> Store:
        """Return the store under the prefix of this attempt; over `root` when no connection is given."""
        return _attempt_store(self.root if connection is None else connection, self.attempt)


def open_root(config: RendezvousConfig) -> TCPStore:
    """Return a connection to the store, which rank 0 opens unless torchrun's agent has.

    Raises:
        RankFailedError: There is no store at the endpoint within the timeout.
        RuntimeError: Rank 0 cannot open the store.
    """
    try:
        return open_store(config, server=config.hosts_store)
    except RankFailedError:
        # What listens there may not answer, and torch's client waits for it without a limit.
        shut_down(config.port)
        for thread in threading.enumerate():
            if thread.name == CONNECT_THREAD:
                thread.join(_ACK_TIMEOUT)
        raise


def rendezvous(config: RendezvousConfig, root: TCPStore | None = None) -> RendezvousResult:
    """Join the job and wait for every other rank, over the connection of an earlier rendezvous if there is one.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        ValueError: Two processes have the same rank, ranks disagree about the world size, or something else than this
            version of hpu-core wrote to the store.
    """
    root = open_root(config) if root is None else root
    own = RankInfo(config.rank, socket.gethostname(), os.getpid(), tuple(own_connections(config.port)))
    try:
        with cpp_log.silence():
            attempt, ranks = (_wait_for_ranks if config.rank == 0 else _wait_for_outcome)(root, config, own)
    except RuntimeError as error:
        if isinstance(error, RankFailedError):
            raise
        config.check()
        raise RankFailedError(f"rank 0 exited during rendezvous at {config.endpoint}: see its own error") from error
    return RendezvousResult(config, root, attempt, ranks)


def _wait_for_ranks(root: Store, config: RendezvousConfig, own: RankInfo) -> tuple[int, Mapping[int, RankInfo]]:
    """Begin an attempt on rank 0, wait until every rank has joined it, and publish the outcome."""
    attempt = root.add(_ATTEMPTS, 1)
    store = _attempt_store(root, attempt)
    _join(store, config, own)
    members: dict[int, RankInfo] = {}
    seen: set[int] = set()
    deadline = time.monotonic() + config.timeout.total_seconds()
    error: Exception | None = None
    while error is None and len(members) < config.world_size:
        time.sleep(_POLL_INTERVAL)
        try:
            for record in _new_entries(store, seen):
                _admit(members, record, config)
            latest = _count(root, _ATTEMPTS)
            if latest != attempt:
                # The rank 0 of that attempt learns of this one.
                _join(_attempt_store(root, latest), config, own)
                error = _duplicate_error(own, "another process")
            config.check()
        except (RankFailedError, ValueError) as reason:
            error = reason
        missing = [rank for rank in range(config.world_size) if rank not in members]
        if error is None and missing and time.monotonic() > deadline:
            error = RankFailedError(
                f"rank{'s' if len(missing) > 1 else ''} {_enumerate(missing)} did not join at {config.endpoint} within "
                f"{config.timeout.total_seconds():g} s: check whether they run, and their errors if not"
            )
    outcome = {"error": None if error is None else str(error), "is_value_error": isinstance(error, ValueError)}
    publish(store, "outcome", outcome | {"leader": asdict(own)})
    if error is None:
        return attempt, dict(sorted(members.items()))
    # Keep the store open until the present ranks have read why.
    deadline = time.monotonic() + _ACK_TIMEOUT
    while time.monotonic() < deadline and store.add("outcome_read", 0) < len(seen) - 1:
        time.sleep(_POLL_INTERVAL)
    raise error


def _wait_for_outcome(root: Store, config: RendezvousConfig, own: RankInfo) -> tuple[int, Mapping[int, RankInfo]]:
    """Join rank 0's attempt, and wait for its outcome."""
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * config.timeout.total_seconds() + _ACK_TIMEOUT
    interval = max(_POLL_INTERVAL, config.world_size / _MAX_POLL_RATE)
    joined, is_over = 0, True
    while time.monotonic() < deadline:
        config.check()
        attempt = _count(root, _ATTEMPTS)
        store = _attempt_store(root, attempt)
        outcome = None if joined == attempt and is_over else try_get(store, "outcome")
        if attempt > joined:
            # An outcome of ranks that are gone, if there is one already.
            joined, is_over = attempt, outcome is not None
            if not is_over:
                _join(store, config, own)
        elif outcome is not None:
            store.add("outcome_read", 1)
            return attempt, {0: _leader_of(outcome, config), config.rank: own}
        time.sleep(interval)
    raise RankFailedError(
        f"rank 0 did not join at {config.endpoint} within {config.timeout.total_seconds():g} s: check that it runs, "
        "and that every machine has the same version of hpu-core"
    )


def _attempt_store(root: Store, attempt: int) -> Store:
    return PrefixStore(f"hpu_core/{attempt}", root)


def _count(store: Store, key: str) -> int:
    count = store.add(key, 0)
    if not 0 <= count <= _MAX_ENTRIES:
        raise invalid_entry(key, count)
    return count


def _join(store: Store, config: RendezvousConfig, own: RankInfo) -> None:
    # A first heartbeat, so that no reader of it has to wait.
    store.set(f"heartbeat/{own.rank}", Heartbeat().to_json())
    record = {"protocol": PROTOCOL, "world_size": config.world_size, "rank": asdict(own)}
    publish(store, f"join/{store.add('join', 1)}", record)


def _new_entries(store: Store, seen: set[int]) -> Iterator[dict[str, Any]]:
    """Yield what ranks wrote that are not in `seen`, and add them; a rank may have died before it wrote."""
    for index in set(range(1, _count(store, "join") + 1)) - seen:
        record = try_get(store, f"join/{index}")
        if record is not None:
            seen.add(index)
            yield record


def _admit(members: dict[int, RankInfo], record: Mapping[str, Any], config: RendezvousConfig) -> None:
    """Add a rank that has joined; raise a ValueError if it cannot be one of the ranks."""
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
        raise _duplicate_error(members[info.rank], info)
    members[info.rank] = info


def _duplicate_error(first: RankInfo, second: object) -> ValueError:
    return ValueError(f"{first} and {second} have the same rank: NODE_RANK must differ from machine to machine")


def _parse_rank(record: object) -> RankInfo:
    match record:
        case {"rank": int(rank), "host": str(host), "pid": int(pid), "connections": [*connections]}:
            return RankInfo(rank, host, pid, tuple(map(str, connections)))
    raise invalid_entry("rank", record)


def _leader_of(outcome: Mapping[str, Any], config: RendezvousConfig) -> RankInfo:
    """Return rank 0 of a rendezvous, or raise the error that ended it."""
    match outcome:
        case {"error": str(text), "is_value_error": bool(is_value_error)}:
            error = ValueError(text) if is_value_error else RankFailedError(text)
            vars(error)["is_reported"] = not config.reports
            raise error
        case {"error": None, "leader": {"rank": 0} as record}:
            return _parse_rank(record)
    raise invalid_entry("outcome", outcome)


def _enumerate(ranks: Sequence[int]) -> str:
    """Return ranks, which are sorted, in words: "1, 2, 8-15"."""
    # In a row, ranks and their places differ by the same number.
    rows = (
        [str(rank) for _, rank in row] for _, row in itertools.groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(row) for row in rows)  # noqa: PLR2004 - a pair.
