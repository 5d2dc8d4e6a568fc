"""Rendezvous: every rank joins the same attempt, or learns which rank is missing.

The job's store may outlive an attempt (torchrun restarts ranks, a program destroys its process group and makes
another), so it can hold keys of ranks that are gone. Rank 0 therefore numbers the attempts, and process group and
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
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final

from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import Heartbeat, RankInfo
from hpu_core.distributed.store import (
    PrefixStore,
    RendezvousConfig,
    Store,
    TCPStore,
    invalid_entry,
    open_store,
    publish,
    silence,
    try_get,
)

# Version of what ranks write to the store; raised when a reader of the last one could misread it.
PROTOCOL: Final = 4

# How long rank 0 keeps the store open for the present ranks to read a failure.
_ACK_TIMEOUT: Final = 5.0
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
        ranks: Every rank on rank 0, in order; rank 0 and itself on the others, which need to know no more.
    """

    config: RendezvousConfig
    root: TCPStore
    attempt: int
    ranks: Mapping[int, RankInfo]

    def store(self, connection: Store | None = None) -> Store:
        """Return the store under the prefix of this attempt; over `root` when no connection is given."""
        return _attempt_store(self.root if connection is None else connection, self.attempt)

    def connecting(self, seconds: float) -> RendezvousConfig:
        """Return what another process of this rank connects with, within some seconds."""
        return replace(self.config, timeout=timedelta(seconds=seconds), check=lambda: None)


def rendezvous(config: RendezvousConfig, root: TCPStore | None = None) -> RendezvousResult:
    """Join the job and wait for every other rank, over the connection of an earlier rendezvous if there is one.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        RuntimeError: Rank 0 cannot open the store.
        ValueError: Two processes have the same rank, ranks disagree about the world size, or something else than this
            version of hpu-core wrote to the store.
    """
    with silence():
        root = open_store(config, server=config.hosts_store) if root is None else root
        own = RankInfo(config.rank, socket.gethostname(), os.getpid())
        try:
            attempt, ranks = (_lead if config.rank == 0 else _follow)(root, config, own)
        except RuntimeError as error:
            if isinstance(error, RankFailedError):
                raise
            config.check()
            raise RankFailedError(f"rank 0 exited during rendezvous at {config.endpoint}: see its own error") from error
    return RendezvousResult(config, root, attempt, ranks)


def _lead(root: Store, config: RendezvousConfig, own: RankInfo) -> tuple[int, Mapping[int, RankInfo]]:
    """Begin an attempt on rank 0, wait until every rank has joined it, and publish the outcome."""
    attempt = root.add(_ATTEMPTS, 1)
    store = _attempt_store(root, attempt)
    publish(store, "leader", {"protocol": PROTOCOL, "world_size": config.world_size})
    deadline = time.monotonic() + config.timeout.total_seconds()
    error: Exception | None = None
    try:
        _join(store, config, own)
        while store.add("joined", 0) < config.world_size:
            if (refusal := try_get(store, "refusal")) is not None:
                raise ValueError(refusal.get("error"))  # noqa: TRY301 - published below, as all errors.
            if (latest := root.add(_ATTEMPTS, 0)) != attempt:
                error = _duplicate_error(own, "another process")
                publish(_attempt_store(root, latest), "refusal", {"error": str(error)})
                raise error
            config.check()
            if time.monotonic() > deadline:
                raise _missing_error(store, config)
            time.sleep(_POLL_INTERVAL)
        ranks = {rank: _read_rank(store, rank) for rank in range(config.world_size)}
    except (RankFailedError, ValueError) as reason:
        error = reason
    publish(store, "outcome", {"error": error and str(error), "is_value_error": isinstance(error, ValueError)})
    if error is None:
        return attempt, ranks
    # Keep the store open until the present ranks have read why.
    deadline = time.monotonic() + _ACK_TIMEOUT
    while time.monotonic() < deadline and store.add("outcome_read", 0) < store.add("present", 0) - 1:
        time.sleep(_POLL_INTERVAL)
    raise error


def _follow(root: Store, config: RendezvousConfig, own: RankInfo) -> tuple[int, Mapping[int, RankInfo]]:
    """Join rank 0's attempt, and wait for its outcome."""
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * config.timeout.total_seconds() + _ACK_TIMEOUT
    interval = max(_POLL_INTERVAL, config.world_size / _MAX_POLL_RATE)
    joined, is_over = 0, True
    while time.monotonic() < deadline:
        config.check()
        attempt = root.add(_ATTEMPTS, 0)
        store = _attempt_store(root, attempt)
        outcome = None if joined == attempt and is_over else try_get(store, "outcome")
        # Rank 0 numbers an attempt before it writes what it is.
        if attempt > joined and (outcome is not None or try_get(store, "leader") is not None):
            # An outcome of ranks that are gone, if there is one already.
            joined, is_over = attempt, outcome is not None
            if not is_over:
                _join(store, config, own)
        elif attempt == joined and outcome is not None:
            store.add("outcome_read", 1)
            _raise_error(outcome, config)
            return attempt, {0: _read_rank(store, 0), config.rank: own}
        time.sleep(interval)
    raise RankFailedError(
        f"rank 0 did not join at {config.endpoint} within {config.timeout.total_seconds():g} s: check that it runs, "
        "and that every machine has the same version of hpu-core"
    )


def _attempt_store(root: Store, attempt: int) -> Store:
    return PrefixStore(f"hpu_core/{attempt}", root)


def _join(store: Store, config: RendezvousConfig, own: RankInfo) -> None:
    """Write who this rank is; have rank 0 end the attempt if it cannot be a rank of it."""
    leader = try_get(store, "leader") or {}
    problem: ValueError | None = None
    if leader.get("protocol") != PROTOCOL:
        problem = ValueError(f"{own} runs another version of hpu-core than rank 0: install the same on every machine")
    elif leader.get("world_size") != config.world_size:
        problem = ValueError(
            f"{own} has world size {config.world_size} and rank 0 {leader.get('world_size')}: `devices` and "
            "`num_nodes` must be the same on every machine"
        )
    elif store.add(f"rank/{own.rank}", 1) > 1:
        # The first one may not have written who it is.
        first = try_get(store, f"join/{own.rank}")
        problem = _duplicate_error("another process" if first is None else _parse_rank(first), own)
    store.add("present", 1)
    if problem is not None:
        return publish(store, "refusal", {"error": str(problem)})
    # A first heartbeat, so that no reader of it has to wait.
    store.set(f"heartbeat/{own.rank}", Heartbeat().to_json())
    publish(store, f"join/{own.rank}", asdict(own))
    store.add("joined", 1)
    return None


def _read_rank(store: Store, rank: int) -> RankInfo:
    return _parse_rank(try_get(store, f"join/{rank}"))


def _parse_rank(record: object) -> RankInfo:
    match record:
        case {"rank": int(rank), "host": str(host), "pid": int(pid)}:
            return RankInfo(rank, host, pid)
    raise invalid_entry("join", record)


def _raise_error(outcome: Mapping[str, Any], config: RendezvousConfig) -> None:
    """Raise the error that ended a rendezvous, if there was one."""
    match outcome:
        case {"error": str(text), "is_value_error": bool(is_value_error)}:
            error = ValueError(text) if is_value_error else RankFailedError(text)
            vars(error)["is_reported"] = not config.reports
            raise error
        case {"error": None}:
            return
    raise invalid_entry("outcome", outcome)


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
