"""Rendezvous: every rank joins the same attempt in the store at MASTER_PORT, or learns which rank is missing.

The store may outlive an attempt: torchrun restarts ranks, and a program destroys its process group and makes another.
Rank 0 therefore numbers the attempts, and the others join the last one that is open.
"""

import os
import resource
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hpu_core.distributed import processes
from hpu_core.distributed.errors import RankFailedError
from hpu_core.launcher_env import AGENT_STORE

if TYPE_CHECKING:
    from torch._C import _distributed_c10d as _c10d
else:
    # The names are public here, but not for type checkers.
    from torch import distributed as _c10d

Store: TypeAlias = _c10d.Store
TCPStore: TypeAlias = _c10d.TCPStore

_ATTEMPTS, _JOINED, _COMPLETE = "hpu_core/attempts", "joined", "complete"
# Seconds between two looks, and of a host to refuse a connection. torch looks names up to open one.
_POLL_SECONDS, _REFUSAL_SECONDS, _CONNECT_TIMEOUT = 0.02, 1.0, timedelta(seconds=60)
# Polls per second of all waiting ranks together.
_MAX_POLL_RATE: Final = 2000
_MANY_RANKS: Final = 200


@dataclass(frozen=True, slots=True)
class Job:
    """This process's part in a job.

    Attributes:
        host: Address of the store, MASTER_ADDR.
        port: Port of the store, MASTER_PORT.
        rank: Global rank.
        local_rank: Rank on this machine.
        world_size: Number of ranks.
        timeout: How long ranks wait for each other.
        attempt: Number of the attempt that all ranks have joined, the same on each.
        root: Connection to the store; closing the last one of rank 0 closes the store.
        runs: Number of the training in the process group, the same on each rank.
    """

    host: str
    port: int
    rank: int
    local_rank: int
    world_size: int
    timeout: timedelta
    attempt: int = 0
    root: TCPStore | None = None
    runs: int = 1

    @property
    def endpoint(self) -> str:
        """Address and port: "10.0.0.1:29500"."""
        return f"{self.host}:{self.port}"

    @property
    def hosts_store(self) -> bool:
        """Whether this process keeps the store."""
        return self.rank == 0 and os.environ.get(AGENT_STORE) != "True"

    def store(self, *prefix: object, connection: Store | None = None) -> Store:
        """Return the store under the prefix of this attempt and further parts, over `root` by default."""
        name = "/".join(map(str, ("hpu_core", self.attempt, *prefix)))
        return _c10d.PrefixStore(name, connection or self.root)  # type: ignore[arg-type] # There is one after `join`.


def join(job: Job, timeout: timedelta) -> Job:
    """Wait for every other rank, and return the job with its store and attempt.

    Args:
        job: The job, with the connection of the program's process group if there is one.
        timeout: How long to wait.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        RuntimeError: Rank 0 cannot open the store, or has closed it.
    """
    root, deadline, joined = job.root or open_store(job, timeout), time.monotonic() + timeout.total_seconds(), 0
    if job.rank == 0:
        root.add(_ATTEMPTS, 1)
    while True:
        _check_neighbors(job)
        job = replace(job, root=root, attempt=root.add(_ATTEMPTS, 0))
        store = job.store()
        # Only rank 0 of the same attempt completes it: what an earlier start has left in the store does not count.
        is_complete = store.add(_COMPLETE, 0) > 0
        if is_complete and job.attempt == joined:
            return job
        if job.attempt > joined and not is_complete:
            joined = job.attempt
            # Of two processes with one rank, one is in the place of another.
            store.add(_JOINED, int(store.add(f"rank/{job.rank}", 1) == 1))
        elif job.rank == 0 and store.add(_JOINED, 0) == job.world_size:
            store.add(_COMPLETE, 1)
        elif time.monotonic() > deadline:
            ranks = range(job.world_size if job.attempt == joined > 0 else 0)
            # Without rank 0 of this start, there is no attempt to join, or one that nobody completes.
            missing = [rank for rank in ranks if store.add(f"rank/{rank}", 0) == 0] or [0]
            names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            raise RankFailedError(
                f"{names} did not join at {job.endpoint} within {timeout.total_seconds():g} s: check whether they run, "
                "their errors, and that `devices`, `num_nodes`, NODE_RANK and the version of hpu-core are right on "
                "every machine"
            )
        else:
            time.sleep(max(_POLL_SECONDS, job.world_size / _MAX_POLL_RATE))


def open_store(job: Job, timeout: timedelta) -> TCPStore:
    """Connect to the store, and open it first on the rank that keeps it.

    Raises:
        RankFailedError: There is no store at the endpoint within the timeout.
        RuntimeError: The store cannot be opened.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        _check_neighbors(job)
        try:
            store = connect(job, server=job.hosts_store)
        except (OSError, RuntimeError) as error:
            # The rest is a trace of C++.
            reason = str(error).splitlines()[0].rstrip(".")
            if job.hosts_store:
                raise RuntimeError(
                    f"rank 0 cannot open the store at {job.endpoint}: {reason}. MASTER_PORT must be free on the "
                    "machine of rank 0, and MASTER_ADDR must be that machine"
                ) from error
            if time.monotonic() > deadline:
                raise RankFailedError(
                    f"rank {job.rank} found no rank 0 at {job.endpoint} within {timeout.total_seconds():g} s: "
                    f"{reason}. Check that rank 0 runs there, and that MASTER_ADDR and MASTER_PORT are the same on "
                    "every machine"
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            store.set_timeout(job.timeout)
            return store


def connect(job: Job, *, server: bool = False) -> TCPStore:
    """Return another connection to the store of a job, or open that store.

    Raises:
        OSError: The store is closed, or its machine does not answer.
        RuntimeError: There is no connection, or the port is taken.
    """
    if not server:
        # torch would try again and again, and log each time.
        socket.create_connection((job.host, job.port), _REFUSAL_SECONDS).close()
    elif job.world_size > _MANY_RANKS:
        # Two connections a rank: many systems allow 1024 files, and the store would hang.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options: dict[str, Any] = {"wait_for_workers": False, "multi_tenant": True, "timeout": _CONNECT_TIMEOUT}
    return TCPStore(job.host, job.port, job.world_size, is_master=server, **options)


def _check_neighbors(job: Job) -> None:
    """Raise an error if a rank that this process launched, or the one that launched it, has exited."""
    for rank, reason in processes.exits(job.rank - job.local_rank).items():
        raise RankFailedError(f"rank {rank} exited before it joined: {reason}. See its own error")


def read(store: Store, keys: Sequence[str]) -> list[bytes]:
    """Return the values of keys, in one request from torch 2.1 on."""
    return store.multi_get([*keys]) if hasattr(store, "multi_get") else [store.get(key) for key in keys]


def set_first(store: Store, key: str, value: str) -> str:
    """Set a key that has no value, and return its value."""
    # torch 2.0's `compare_set` makes Python objects without the GIL, which crashes a process of several threads.
    if store.add(f"{key}/setters", 1) == 1:
        store.set(key, value)
    return store.get(key).decode()
