"""Process group of this process: rendezvous, hccl initialization, and the watchdog of its ranks."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from hpu_core import collectives, hccl
from hpu_core._lightning import ClusterEnvironment, init_dist_connection
from hpu_core.distributed import excepthook
from hpu_core.distributed.connections import own_endpoints
from hpu_core.distributed.environment import LAUNCHER_PID, find_agent, validate_environment
from hpu_core.distributed.failure_detection import Heartbeat, RankFailedError, describe_exit
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.store import RendezvousConfig, open_store
from hpu_core.distributed.watchdog import Watchdog

__all__ = ["BACKEND", "FAILURE_DETECTION", "TIMEOUT", "ProcessGroupManager"]

BACKEND: Final = "hccl"
TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.
# Set to "0" to switch failure detection off in every strategy.
FAILURE_DETECTION: Final = "HPU_FAILURE_DETECTION"

# torch's own backends, none of which takes hpu tensors.
_CPU_GPU_BACKENDS: Final = frozenset({"gloo", "mpi", "nccl", "ucc"})


@dataclass(slots=True)
class _Job:
    """The job of this process's default process group, which outlives the strategies that use it."""

    result: RendezvousResult
    heartbeat: Heartbeat = field(default_factory=Heartbeat)


_job: _Job | None = None


class _BackendError(ValueError, AssertionError):
    """A backend that does not take hpu tensors. `lightning-habana` raised an AssertionError."""


class ProcessGroupManager:
    """Rendezvous, default process group and watchdog of one strategy.

    Args:
        backend: Process group backend; "hccl" when None.
        timeout: How long ranks wait for each other; 30 minutes when None.
        failure_detection: Whether to run the watchdog; HPU_FAILURE_DETECTION=0 switches it off as well.

    Attributes:
        launched: The ranks that this process launched.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: `timeout` is not positive, or `backend` does not take hpu tensors.
    """

    def __init__(self, backend: str | None, timeout: timedelta | None, failure_detection: bool = True) -> None:
        self.backend = _validate_backend(backend)
        self.timeout = _validate_timeout(timeout)
        self.failure_detection = failure_detection and os.environ.get(FAILURE_DETECTION) != "0"
        self.launched = LaunchedRanks()
        self.watchdog: Watchdog | None = None

    def rendezvous(self, cluster: ClusterEnvironment | None, devices: int, num_nodes: int) -> None:
        """Wait for the other ranks, unless this process has a process group already, and start the watchdog.

        Args:
            cluster: Lightning's cluster environment.
            devices: Processes per machine.
            num_nodes: Number of machines.

        Raises:
            RankFailedError: A rank did not join or has failed; the message names it.
            RuntimeError: Rank 0 cannot open the store.
            ValueError: The environment is incomplete or contradicts itself, or ranks disagree about it.
        """
        cluster = _require_cluster(cluster)
        validate_environment(cluster, devices, num_nodes)
        self.join(cluster)

    def join(self, cluster: ClusterEnvironment) -> None:
        """Wait for the other ranks and start the watchdog, without a check of the environment.

        Args:
            cluster: Lightning's cluster environment.

        Raises:
            RankFailedError: A rank did not join or has failed; the message names it.
            RuntimeError: Rank 0 cannot open the store.
        """
        global _job  # noqa: PLW0603 - torch has one default process group per process.
        config = RendezvousConfig(
            cluster.main_address,
            cluster.main_port,
            cluster.global_rank(),
            cluster.local_rank(),
            cluster.world_size(),
            self.timeout,
            _PeerCheck(self.launched),
        )
        if not dist.is_initialized():
            reusable = _job is not None and _job.result.config.endpoint == config.endpoint
            _job = _Job(rendezvous(config, _job.result.root if _job is not None and reusable else None))
        # The program or Ray made the process group. Without a connection to MASTER_PORT, its store is elsewhere and
        # there is no job to watch.
        elif _job is None and self.failure_detection and config.world_size > 1 and own_endpoints(config.port):
            _job = _Job(rendezvous(config, open_store(config, server=False)))
        if _job is not None and self.failure_detection:
            excepthook.install(_job.result.store().add)
            if config.world_size > 1 and self.watchdog is None:
                self.watchdog = Watchdog(_job.result, _job.heartbeat, self.launched, find_agent())
                self.watchdog.start()
        if self.watchdog is not None:
            self.watchdog.on_training_start()

    def init_process_group(self, cluster: ClusterEnvironment | None) -> None:
        """Set this process's rank for the bridge and create the default process group, unless there is one.

        Raises:
            RuntimeError: The program made a process group that takes no hpu tensors.
        """
        cluster = _require_cluster(cluster)
        hccl.initialize_hccl(cluster.world_size(), cluster.global_rank(), cluster.local_rank())
        if not dist.is_initialized() and _job is not None:
            # Without `device_id`, which Lightning passes from 2.5.5 on: torch wants one with an index.
            init_dist_connection(cluster, self.backend, timeout=self.timeout, store=_job.result.store())
            collectives.ignore_barrier_warning()
        elif not _supports_hpu(dist.get_backend()):
            raise RuntimeError(
                f"the process group must have a backend that takes hpu tensors, got {dist.get_backend()!r}: call "
                f"`init_process_group({BACKEND!r})`, or leave it to the strategy"
            )

    def collective(self, name: str, group: Any | None = None) -> AbstractContextManager[None]:
        """Return a context that counts a collective of all ranks; those of a smaller group are not counted."""
        if self.watchdog is None or group not in {None, dist.group.WORLD}:
            return nullcontext()
        return self.watchdog.collective(name)

    def report_failure(self, error: BaseException) -> None:
        """Publish that this rank cannot continue."""
        if self.watchdog is not None:
            self.watchdog.report_failure(error)

    def close(self) -> None:
        """End the watchdog. The process group stays, as everywhere in torch, and another strategy may use it."""
        if self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None


class _PeerCheck:
    """Check of the processes around this one during rendezvous: its launcher, and the ranks that it launched."""

    def __init__(self, launched: LaunchedRanks) -> None:
        self._launched = launched
        self._launcher = os.environ.pop(LAUNCHER_PID, None)

    def __call__(self) -> None:
        for rank, code in self._launched.exit_codes().items():
            raise RankFailedError(f"rank {rank} exited before it joined: {describe_exit(code)}. See its own error")
        if self._launcher not in {None, str(os.getppid())}:
            raise RankFailedError(f"rank 0 of this machine (pid {self._launcher}), which launched this rank, exited")


def _require_cluster(cluster: ClusterEnvironment | None) -> ClusterEnvironment:
    if cluster is None:
        raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
    return cluster


def _validate_backend(name: str | None) -> str:
    # The bridge registers "hccl", and may not be loaded yet.
    if name in {None, BACKEND}:
        return BACKEND
    if not _supports_hpu(str(name)):
        raise _BackendError(
            f"`process_group_backend` must be 'hccl' or a backend that is registered for 'hpu', got {name!r}: leave it "
            "out"
        )
    return str(name)


def _supports_hpu(backend: str) -> bool:
    capabilities: dict[str, list[str]] | None = getattr(dist.Backend, "backend_capability", None)
    if capabilities is not None:
        return "hpu" in capabilities.get(backend, ())
    # torch 2.0 knows the names of backends and not their devices.
    return backend not in _CPU_GPU_BACKENDS and hasattr(dist.Backend, backend.upper())


def _validate_timeout(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        return TIMEOUT
    if not isinstance(timeout, timedelta):
        raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
    if timeout <= timedelta(0):
        raise ValueError(f"`timeout` must be more than 0 seconds, got {timeout.total_seconds():g} s")
    return timeout
