"""Rendezvous: every rank joins the same attempt, or learns which rank is missing.

The job's store may outlive an attempt (torchrun restarts ranks, a program destroys its process group and makes
another), so it can hold keys of ranks that have exited. Rank 0 therefore numbers the attempts, and process group and
guards use the store under that number alone. The others join the last attempt that has no outcome, and the next one
as soon as there is one.

`torch.distributed.elastic.utils.store.barrier` does not fit: it needs a key that is new in the store, waits although a
launched rank has exited, and names the missing ranks on rank 0 only.
"""

import itertools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import Heartbeat
from hpu_core.distributed.store import (
    PrefixStore,
    RendezvousConfig,
    Store,
    TCPStore,
    open_store,
    put_record,
    quiet_logs,
    try_get,
)

# Version of what ranks write to the store; raised when a reader of the last one could misread it.
PROTOCOL: Final = 7

# How long rank 0 keeps the store open for the present ranks to read a failure.
_READ_TIMEOUT: Final = 5.0
_POLL_INTERVAL: Final = 0.02
# Polls per second of all waiting ranks together, which must not delay rank 0's own requests to the store.
_MAX_POLL_RATE: Final = 2000
_ATTEMPTS: Final = "hpu_core/attempts"


@dataclass(frozen=True, slots=True)
class RendezvousResult:
    """Outcome of a rendezvous that every rank has joined.

    Attributes:
        config: What this rank joined with.
        root: Connection to the store; closing the last one of rank 0 closes the store.
        attempt: Number of the attempt, the same on every rank.
        ranks: Names of all ranks on rank 0, in order: "rank 3 (pid 4711 on node-1)"; rank 0 and itself on the others,
            which need to know no more.
    """

    config: RendezvousConfig
    root: TCPStore
    attempt: int
    ranks: Mapping[int, str]

    def store(self, connection: Store | None = None) -> Store:
        """Return the store under the prefix of this attempt; over `root` when no connection is given."""
        return _attempt_store(self.root if connection is None else connection, self.attempt)


def rendezvous(config: RendezvousConfig, root: TCPStore | None = None) -> RendezvousResult:
    """Join the job and wait for every other rank, over the connection of an earlier rendezvous if there is one.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        RuntimeError: Rank 0 cannot open the store.
        ValueError: Two processes have the same rank, ranks disagree about the world size, or something else than this
            version of hpu-core wrote to the store.
    """
    with quiet_logs():
        root = open_store(config, server=config.hosts_store) if root is None else root
        own = f"rank {config.rank} (pid {os.getpid()} on {socket.gethostname()})"
        try:
            attempt, ranks = (_join_as_leader if config.rank == 0 else _join_leader)(root, config, own)
        except RuntimeError as error:
            if isinstance(error, RankFailedError):
                raise
            config.check()
            raise RankFailedError(f"rank 0 exited during rendezvous at {config.endpoint}: see its own error") from error
    return RendezvousResult(config, root, attempt, ranks)


def _join_as_leader(root: Store, config: RendezvousConfig, own: str) -> tuple[int, Mapping[int, str]]:
    """Begin an attempt on rank 0, wait until every rank has joined it, and publish the outcome."""
    attempt = root.add(_ATTEMPTS, 1)
    store = _attempt_store(root, attempt)
    put_record(store, "leader", {"protocol": PROTOCOL, "world_size": config.world_size})
    deadline = time.monotonic() + config.timeout.total_seconds()
    try:
        _join(store, config, own)
        while store.add("joined", 0) < config.world_size:
            # Of a rank that cannot join.
            _read_outcome(store, config)
            if (latest := root.add(_ATTEMPTS, 0)) != attempt:
                error = _duplicate_error(own, "another process")
                _put_outcome(_attempt_store(root, latest), error)
                raise error
            config.check()
            if time.monotonic() > deadline:
                raise _missing_error(store, config)
            time.sleep(_POLL_INTERVAL)
        ranks = {rank: _name(store, rank) for rank in range(config.world_size)}
    except (RankFailedError, ValueError) as error:
        _put_outcome(store, error)
        # Keep the store open until the present ranks have read why.
        deadline = time.monotonic() + _READ_TIMEOUT
        while time.monotonic() < deadline and store.add("outcome_read", 0) < store.add("present", 0) - 1:
            time.sleep(_POLL_INTERVAL)
        raise
    _put_outcome(store, None)
    return attempt, ranks


def _join_leader(root: Store, config: RendezvousConfig, own: str) -> tuple[int, Mapping[int, str]]:
    """Join rank 0's attempt, and wait for its outcome."""
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * config.timeout.total_seconds() + _READ_TIMEOUT
    interval = max(_POLL_INTERVAL, config.world_size / _MAX_POLL_RATE)
    joined = 0
    while time.monotonic() < deadline:
        config.check()
        attempt = root.add(_ATTEMPTS, 0)
        store = _attempt_store(root, attempt)
        if attempt == joined:
            if attempt and _read_outcome(store, config):
                return attempt, {0: _name(store, 0), config.rank: own}
        # Rank 0 numbers an attempt before it writes what it is; one that has an outcome is of earlier ranks.
        elif try_get(store, "leader") is not None and try_get(store, "outcome") is None:
            _join(store, config, own)
            joined = attempt
        time.sleep(interval)
    raise RankFailedError(
        f"rank 0 did not join at {config.endpoint} within {config.timeout.total_seconds():g} s: check that it runs, "
        "and that every machine has the same version of hpu-core"
    )


def _attempt_store(root: Store, attempt: int) -> Store:
    return PrefixStore(f"hpu_core/{attempt}", root)


def _join(store: Store, config: RendezvousConfig, own: str) -> None:
    """Write who this rank is, or end the attempt if it cannot be a rank of it."""
    leader = try_get(store, "leader") or {}
    store.add("present", 1)
    problem: ValueError | None = None
    if leader.get("protocol") != PROTOCOL:
        problem = ValueError(f"{own} runs another version of hpu-core than rank 0: install the same on every machine")
    elif leader.get("world_size") != config.world_size:
        problem = ValueError(
            f"{own} has world size {config.world_size} and rank 0 {leader.get('world_size')}: `devices` and "
            "`num_nodes` must be the same on every machine"
        )
    elif store.add(f"rank/{config.rank}", 1) > 1:
        # The first one may not have written who it is.
        is_known = try_get(store, f"join/{config.rank}") is not None
        problem = _duplicate_error(_name(store, config.rank) if is_known else "another process", own)
    if problem is not None:
        return _put_outcome(store, problem)
    # A first heartbeat, so that no reader of it has to wait.
    store.set(f"heartbeat/{config.rank}", Heartbeat().to_json())
    put_record(store, f"join/{config.rank}", {"name": own})
    store.add("joined", 1)
    return None


def _name(store: Store, rank: int) -> str:
    return str((try_get(store, f"join/{rank}") or {}).get("name"))


def _put_outcome(store: Store, error: Exception | None) -> None:
    put_record(store, "outcome", {"error": error and str(error), "is_value_error": isinstance(error, ValueError)})


def _read_outcome(store: Store, config: RendezvousConfig) -> bool:
    """Return whether an attempt has an outcome; raise the error that ended it, if one did."""
    outcome = try_get(store, "outcome")
    if outcome is None:
        return False
    if config.rank != 0:
        store.add("outcome_read", 1)
    if (text := outcome.get("error")) is None:
        return True
    error = (ValueError if outcome.get("is_value_error") else RankFailedError)(text)
    vars(error)["is_reported"] = not config.reports
    raise error


def _duplicate_error(first: object, second: object) -> ValueError:
    return ValueError(f"{first} and {second} have the same rank: NODE_RANK must differ from machine to machine")


def _missing_error(store: Store, config: RendezvousConfig) -> RankFailedError:
    missing = [rank for rank in range(config.world_size) if not store.add(f"rank/{rank}", 0)]
    return RankFailedError(
        f"rank{'s' if len(missing) > 1 else ''} {_enumerate(missing)} did not join at {config.endpoint} within "
        f"{config.timeout.total_seconds():g} s: check whether they run, and their errors if not"
    )


def _enumerate(ranks: Sequence[int]) -> str:
    """Return ranks, which are sorted, in words: "1, 2, 8-15"."""
    # In a row, ranks and their places differ by the same number.
    rows = (
        [str(rank) for _, rank in row] for _, row in itertools.groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])
    )
    return ", ".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(row) for row in rows)  # noqa: PLR2004 - a pair.
