"""Process group of this process: rendezvous, default process group, and the monitor of its rank."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from hpu_core import collectives
from hpu_core._lightning import ClusterEnvironment, SIGTERMException, TunerExitException, init_dist_connection
from hpu_core.distributed import processes
from hpu_core.distributed.errors import RankFailedError, describe_error, install_hook
from hpu_core.distributed.monitor import Monitor, warn_off
from hpu_core.distributed.progress import END_OF_EPOCH, Progress
from hpu_core.distributed.rendezvous import Job, Store, TCPStore, join

BACKEND: Final = "hccl"
TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.
# How long ranks that one of them launches may take to join, however short the timeout: a busy machine imports slowly.
_MIN_JOIN_TIMEOUT: Final = timedelta(minutes=5)
# Set to "0" to switch failure detection off in every strategy.
FAILURE_DETECTION: Final = "HPU_FAILURE_DETECTION"
_POLL_SECONDS: Final = 0.02
# What a host enters only with a step of training.
_TRAINING: Final = frozenset({"training step", "backward", "optimizer step"})

# Exceptions that all ranks raise at the same place.
_OF_ALL_RANKS: Final = (SIGTERMException, TunerExitException)

# Rendezvous of the default process group and monitor of its last training, which outlive the strategies that use them.
_job: Job | None = None
_monitor: Monitor | None = None


class ProcessGroupManager:
    """Rendezvous, default process group and monitor of one strategy.

    Args:
        backend: Process group backend; "hccl" when None.
        timeout: How long ranks wait for each other; 30 minutes when None.
        failure_detection: Whether ranks watch each other; HPU_FAILURE_DETECTION=0 switches it off as well.

    Attributes:
        has_rank: Whether the rank of this process is final, because it has joined the others by it.
        error: The error with which this rank left the job, in words; None while it takes part in collectives.
        progress: How far this rank's host is.
        monitor: The monitor; None before the rendezvous, and without failure detection.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: `backend` does not take hpu tensors.
    """

    def __init__(self, backend: str | None, timeout: timedelta | None, failure_detection: bool = True) -> None:
        self.backend = BACKEND if backend is None else backend
        # Such as "cpu:gloo,hpu:hccl".
        if self.backend != BACKEND and f"hpu:{BACKEND}" not in self.backend.split(","):
            raise ValueError(
                f"`process_group_backend` must be 'hccl', or have 'hpu:hccl' in it, got {backend!r}: leave it out"
            )
        self.timeout = TIMEOUT if timeout is None else timeout
        if not isinstance(self.timeout, timedelta):
            raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
        self.failure_detection = failure_detection and os.environ.get(FAILURE_DETECTION) != "0"
        self.has_rank = False
        self.error: str | None = None
        self.progress = Progress()
        self.monitor: Monitor | None = None

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of an entry point of Lightning's, and publish its error before Lightning calls hooks.

        From then on, this rank enters no collective: the others are not in the same one.
        """
        self.error = None
        try:
            return function(*args, **kwargs)
        except _OF_ALL_RANKS:
            raise
        except BaseException as error:
            self.error = describe_error(error)
            if self.monitor is not None:
                self.monitor.fail(error)
            raise

    def rendezvous(self, cluster: ClusterEnvironment | None) -> None:
        """Wait for the other ranks, unless this process has a process group already, and start the monitor.

        Raises:
            RankFailedError: A rank did not join; the message names it.
            RuntimeError: Rank 0 cannot open the store, or there is no cluster environment.
        """
        global _job, _monitor  # noqa: PLW0603 - torch has one default process group per process.
        if cluster is None:
            raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
        self.has_rank, self.monitor = True, None
        # Fabric does not tear its strategy down.
        if _monitor is not None:
            _monitor.close()
        if not dist.is_initialized():
            _job = None
        if not self.failure_detection or cluster.world_size() == 1:
            return
        install_hook()
        endpoint, ranks = (cluster.main_address, cluster.main_port), (cluster.global_rank(), cluster.local_rank())
        job = Job(*endpoint, *ranks, cluster.world_size(), self.timeout)
        if _job is not None:
            # Of an earlier strategy of this process, which may have had another timeout.
            _job = replace(_job, timeout=self.timeout, runs=_job.runs + 1)
        elif not dist.is_initialized():
            _job = _join(job)
        elif store := _find_store():
            # The program, or Ray, made the process group.
            _job = _join(replace(job, host=store.host, port=store.port, root=store))
        if _job is not None:
            self.progress = Progress()
            try:
                self.monitor = _monitor = Monitor(_job, self.progress)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a healthy training.
                warn_off(job.rank, error)

    @property
    def is_joined(self) -> bool:
        """Whether there is a process group for the collectives of this strategy."""
        return self.has_rank and dist.is_initialized()

    def init_process_group(self, cluster: ClusterEnvironment) -> None:
        """Create the default process group, unless the program has made one."""
        if not dist.is_initialized():
            # Without `device_id`, which Lightning passes from 2.5.5 on: torch wants one with an index.
            store: dict[str, Any] = {} if _job is None else {"store": _job.store()}
            init_dist_connection(cluster, self.backend, timeout=self.timeout, **store)
            collectives.ignore_barrier_warning()
        elif dist.get_backend() == "undefined":
            # Of a group made without a backend, torch takes gloo for the default one, which DDP then does not find.
            group = distributed_c10d._get_default_group()  # noqa: SLF001 - tests compare both with every torch.
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)  # noqa: SLF001

    def check(self) -> None:
        """Raise a RankFailedError if another rank has failed."""
        if self.monitor is not None and self.monitor.failure is not None:
            raise RankFailedError(self.monitor.failure.message)

    @contextmanager
    def step(self, scope: str) -> Iterator[None]:
        """Return the context of a part of a step, such as "backward".

        Raises:
            RankFailedError: Another rank has failed.
        """
        self.check()
        host = self.progress
        before, host.scope, host.moves = host.scope, scope, host.moves + 1
        host.place |= scope in _TRAINING
        try:
            yield
            if scope == "optimizer step":
                host.place = (host.place | 1) + 1
        finally:
            host.scope, host.moves = before, host.moves + 1

    @contextmanager
    def wait(self, name: str, group: Any | None = None) -> Iterator[None]:
        """Return the context of a call that waits for all ranks, such as "barrier"; a smaller group is not counted.

        Raises:
            RankFailedError: Another rank has failed.
            RuntimeError: This rank has failed.
        """
        self.check()
        if self.error is not None:
            raise RuntimeError(f"{name} needs all ranks, and this one has failed before: {self.error}")
        host, is_counted = self.progress, group in {None, dist.group.WORLD}
        if is_counted:
            host.wait, host.waits, host.moves = name, host.waits + 1, host.moves + 1
        try:
            yield
        finally:
            if is_counted:
                host.wait, host.moves = None, host.moves + 1

    @property
    def control_store(self) -> Store | None:
        """The store of this training, for what the ranks agree on; None without failure detection."""
        return _job.store(_job.runs) if self.failure_detection and _job is not None else None

    def end_epoch(self) -> None:
        """Wait until all ranks have ended an epoch of training, or a rank would pair its next one with this one's rest.

        Raises:
            RankFailedError: Another rank goes on with the epoch, or has failed.
        """
        store, monitor = self.control_store, self.monitor
        if store is None or _job is None:
            return
        # Also without a monitor: a rank whose monitor has failed delays no other one.
        last = -(-store.add("epochs", 1) // _job.world_size) * _job.world_size
        with self.wait(END_OF_EPOCH):
            while monitor is not None and not monitor.is_off and store.add("epochs", 0) < last:
                self.check()
                time.sleep(_POLL_SECONDS * max(1.0, _job.world_size / 100))

    def close(self) -> None:
        """Leave the monitor. The process group stays, as everywhere in torch, and another strategy may use it."""
        if self.monitor is not None:
            self.monitor.close()
            self.monitor = None


def _find_store() -> TCPStore | None:
    """Return the store of the default process group; None if it is of another kind, as for all ranks."""
    store = distributed_c10d._get_default_store()  # noqa: SLF001 - tests compare it with every torch.
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store if isinstance(store, TCPStore) else None


def _join(job: Job) -> Job:
    is_launched = bool(processes.LAUNCHED) or processes.launcher_pid() is not None
    try:
        return join(job, max(job.timeout, _MIN_JOIN_TIMEOUT) if is_launched else job.timeout)
    except RuntimeError as error:
        if job.hosts_store or isinstance(error, RankFailedError):
            raise
        raise RankFailedError(f"rank 0 exited during rendezvous at {job.endpoint}: see its own error") from error


NO_GROUP: Final = ProcessGroupManager(None, None, failure_detection=False)
"""Manager of strategies for one device, which have no process group."""
