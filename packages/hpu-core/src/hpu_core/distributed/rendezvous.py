"""Rendezvous: every rank joins the same attempt in the store at MASTER_PORT, or learns which rank is missing.

The store may outlive an attempt: torchrun restarts ranks, and a program destroys its process group and makes another.
Rank 0 therefore numbers the attempts, and the others join the last one that is open.
"""

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hpu_core.distributed import _torch_2_0
from hpu_core.distributed.errors import RankFailedError
from hpu_core.launcher_env import AGENT_STORE

if TYPE_CHECKING:
    from torch._C import _distributed_c10d as _c10d
else:
    # The names are public here, but not for type checkers.
    from torch import distributed as _c10d

Store: TypeAlias = _c10d.Store
TCPStore: TypeAlias = _c10d.TCPStore

_ATTEMPTS: Final = "hpu_core/attempts"
# Seconds between two looks, for which rank 0 keeps the store open for others to read why it fails, that a host may take
# to refuse a connection, and the store to answer.
_POLL_SECONDS, _READ_SECONDS, _REFUSAL_SECONDS, _ANSWER_SECONDS = 0.02, 2.0, 1.0, 5
# Seconds that a connection may take to open, also on a busy machine.
_CONNECT_SECONDS: Final = 60
# Polls per second of all waiting ranks together.
_MAX_POLL_RATE: Final = 2000
# Connections of a rank to the store, and all else that is open.
_FILES_PER_RANK, _OTHER_FILES = 2, 512


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


def join(job: Job, check: Callable[[], None]) -> Job:
    """Wait for every other rank, and return the job with its store and attempt.

    Args:
        job: The job, with the connection of an earlier rendezvous if there is one.
        check: Raises when it makes no sense to wait any longer.

    Raises:
        RankFailedError: A rank did not join in time, or has exited; the message names it.
        RuntimeError: Rank 0 cannot open the store.
    """
    root = job.root or open_store(job, check, server=job.hosts_store)
    try:
        return (_lead if job.rank == 0 else _follow)(replace(job, root=root), root, check)
    except RuntimeError as error:
        if isinstance(error, RankFailedError):
            raise
        check()
        raise RankFailedError(f"rank 0 exited during rendezvous at {job.endpoint}: see its own error") from error


def _lead(job: Job, root: Store, check: Callable[[], None]) -> Job:
    """Begin an attempt on rank 0, wait until every rank has joined it, and write for all whether they have."""
    job = replace(job, attempt=root.add(_ATTEMPTS, 1))
    store, deadline = job.store(), time.monotonic() + job.timeout.total_seconds()
    keys = [f"rank/{rank}" for rank in range(1, job.world_size)]
    failure = ""
    while not failure and not _torch_2_0.has_counted(store, keys):
        time.sleep(_POLL_SECONDS)
        try:
            check()
        except RankFailedError as error:
            failure = str(error)
        if not failure and time.monotonic() > deadline:
            missing = [key.removeprefix("rank/") for key in keys if not _torch_2_0.has_counted(store, [key])]
            failure = f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} did not join at {_within(job)}"
    store.set("failure", failure)
    store.add("over", 1)
    if failure:
        time.sleep(_READ_SECONDS)
        raise RankFailedError(failure)
    return job


def _follow(job: Job, root: Store, check: Callable[[], None]) -> Job:
    """Join rank 0's attempt, and wait until all have."""
    # Rank 0 may join last, and then waits as long for the others.
    deadline = time.monotonic() + 2 * job.timeout.total_seconds() + _READ_SECONDS
    joined = 0
    while time.monotonic() < deadline:
        check()
        job = replace(job, attempt=root.add(_ATTEMPTS, 0))
        store = job.store()
        is_over = _torch_2_0.has_counted(store, ["over"])
        if job.attempt != joined and not is_over:
            store.add(f"rank/{job.rank}", 1)
            joined = job.attempt
        elif job.attempt == joined and is_over:
            if failure := store.get("failure").decode():
                raise RankFailedError(failure)
            return job
        time.sleep(max(_POLL_SECONDS, job.world_size / _MAX_POLL_RATE))
    raise RankFailedError(f"rank 0 did not join at {_within(job)}")


def _within(job: Job) -> str:
    return (
        f"{job.endpoint} within {job.timeout.total_seconds():g} s: check whether they run, their errors, and that "
        "`devices`, `num_nodes`, NODE_RANK and the version of hpu-core are right on every machine"
    )


def open_store(job: Job, check: Callable[[], None] = lambda: None, *, server: bool) -> TCPStore:
    """Connect to the store, and with `server` open it first.

    Raises:
        RankFailedError: There is no store at the endpoint within the timeout.
        RuntimeError: The store cannot be opened.
    """
    deadline = time.monotonic() + job.timeout.total_seconds()
    while True:
        check()
        try:
            store = _connect(job, server=server)
        except (OSError, RuntimeError) as error:
            # The rest is a trace of C++.
            reason = str(error).splitlines()[0].rstrip(".")
            if server:
                raise RuntimeError(
                    f"rank 0 cannot open the store at {job.endpoint}: {reason}. MASTER_PORT must be free on the "
                    "machine of rank 0, and MASTER_ADDR must be that machine"
                ) from error
            if time.monotonic() > deadline:
                raise RankFailedError(
                    f"rank {job.rank} found no rank 0 at {job.endpoint} within {job.timeout.total_seconds():g} s: "
                    f"{reason}. Check that rank 0 runs there, and that MASTER_ADDR and MASTER_PORT are the same on "
                    "every machine"
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            store.set_timeout(job.timeout)
            return store


def connect(job: Job) -> TCPStore:
    """Return another connection to the store of a job, on which no answer takes longer than some seconds.

    torch limits some requests only, and a broken network may swallow the answer to any.

    Raises:
        OSError: There is no connection.
        RuntimeError: The store does not answer.
    """
    before = _open_files()
    connection = _connect(job, server=False)
    for link, number in _open_files().items():
        # Other threads open and close files meanwhile.
        if link in before or not link.startswith("socket:"):
            continue
        with contextlib.suppress(OSError):
            opened = socket.socket(fileno=number)
            try:
                if opened.getpeername()[1:2] == (job.port,):
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _ANSWER_SECONDS, 0))
            finally:
                # It stays torch's.
                opened.detach()
    return connection


def _open_files() -> dict[str, int]:
    """Return the descriptors of this process by what they are, as numbers are used again: {"socket:[4711]": 5}."""
    found = {}
    # A system may hide them; then answers take as long as the system lets them.
    with contextlib.suppress(OSError):
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[str(path.readlink())] = int(path.name)
    return found


def _connect(job: Job, *, server: bool) -> TCPStore:
    if server:
        _allow_files(_FILES_PER_RANK * job.world_size + _OTHER_FILES)
    else:
        socket.create_connection((job.host, job.port), _REFUSAL_SECONDS).close()
    # torch looks names up, which takes some seconds where a name server does not answer.
    limit = timedelta(seconds=_CONNECT_SECONDS)
    options: dict[str, Any] = {"wait_for_workers": False, "multi_tenant": True, "timeout": limit}
    store = TCPStore(job.host, job.port, job.world_size, is_master=server, **options)
    store.set_timeout(timedelta(seconds=_ANSWER_SECONDS))
    return store


def is_refused(job: Job) -> bool:
    """Return whether the host of the store answers that nothing listens at its port, which a lost network does not."""
    try:
        socket.create_connection((job.host, job.port), _REFUSAL_SECONDS).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def _allow_files(count: int) -> None:
    """Raise the limit of open files as far as this process may: many systems have 1024, and the store would hang."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with contextlib.suppress(OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
