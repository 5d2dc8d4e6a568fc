"""Process group of this process: rendezvous, default process group, and the watchdog of its rank."""

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from hpu_core import bridge, collectives
from hpu_core._lightning import ClusterEnvironment, SIGTERMException, TunerExitException, init_dist_connection
from hpu_core.distributed import _torch_2_0
from hpu_core.distributed.errors import RankFailedError, describe_error, install_hook, print_line
from hpu_core.distributed.launcher import LAUNCHED, LaunchedRanks
from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.step_clock import StepClock
from hpu_core.distributed.store import RendezvousConfig, TCPStore, open_store, quiet_logs
from hpu_core.distributed.watchdog import Watchdog
from hpu_core.launcher_env import LAUNCHER_PID

BACKEND: Final = "hccl"
TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.
# How long ranks of one machine may take to join at least, however short the timeout: a busy machine imports slowly, and
# their launcher learns of an exit.
_MIN_JOIN_TIMEOUT: Final = timedelta(minutes=5)
# Set to "0" to switch failure detection off in every strategy.
FAILURE_DETECTION: Final = "HPU_FAILURE_DETECTION"

# Exceptions that all ranks raise at the same place.
_OF_ALL_RANKS: Final = (SIGTERMException, TunerExitException)

# Rendezvous of the default process group, which outlives the strategies that use it.
_job: RendezvousResult | None = None
# Watchdog of this process, for all strategies in that process group.
_watchdog: Watchdog | None = None


class _BackendError(ValueError, AssertionError):
    """A backend that does not take hpu tensors. `lightning-habana` raised an AssertionError."""


class ProcessGroupManager:
    """Rendezvous, default process group and watchdog of one strategy.

    Args:
        backend: Process group backend; "hccl" when None.
        timeout: How long ranks wait for each other; 30 minutes when None.
        failure_detection: Whether to run the watchdog; HPU_FAILURE_DETECTION=0 switches it off as well.

    Attributes:
        launched: The ranks that this process launched, for this strategy or an earlier one.
        has_rank: Whether the rank of this process is final, because it has joined the others by it.
        error: The error with which this rank left the job, in words; None while it takes part in collectives.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: `timeout` is not positive, or `backend` does not take hpu tensors.
    """

    def __init__(self, backend: str | None, timeout: timedelta | None, failure_detection: bool = True) -> None:
        self.backend = _validate_backend(backend)
        self.timeout = _validate_timeout(timeout)
        self.failure_detection = failure_detection and os.environ.get(FAILURE_DETECTION) != "0"
        self.launched = LAUNCHED
        self.has_rank = False
        self.watchdog: Watchdog | None = None
        self._close: Any = None
        self.error: str | None = None

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of an entry point of Lightning's, and publish its error before Lightning calls hooks.

        From then on, this rank enters no collective: the others are not in the same one, and those that wait in one
        learn why it fails.
        """
        self.error = None
        try:
            return function(*args, **kwargs)
        except _OF_ALL_RANKS:
            raise
        except BaseException as error:
            self._leave(error)
            raise

    def leave_if_failed(self, name: str) -> bool:
        """Return whether this rank has failed, so that it must not wait for the others in the call of this name.

        An error that the program handles counts as well, unless all ranks enter that call next.

        Raises:
            RankFailedError: Another rank has failed.
        """
        if self.error is not None:
            return True
        error = sys.exc_info()[1]
        if self.watchdog is None or isinstance(error, (type(None), *_OF_ALL_RANKS, GeneratorExit, StopIteration)):
            return False
        if self.watchdog.confirm(error, name):
            return False
        self._leave(error)
        return True

    def _leave(self, error: BaseException) -> None:
        """Publish and print the error with which this rank leaves the others."""
        self.error = describe_error(error)
        if self.watchdog is not None:
            self.watchdog.report_failure(error)
        elif _job is not None and _job.config.world_size > 1:
            print_line(f"[rank {_job.config.rank}] failed: {self.error}")

    def rendezvous(self, cluster: ClusterEnvironment | None) -> None:
        """Wait for the other ranks, unless this process has a process group already, and start the watchdog.

        Raises:
            RankFailedError: A rank did not join or has failed; the message names it.
            RuntimeError: Rank 0 cannot open the store, or there is no cluster environment.
            ValueError: Ranks disagree about the job.
        """
        global _job  # noqa: PLW0603 - torch has one default process group per process.
        if cluster is None:
            raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
        if self.failure_detection:
            install_hook()
        is_launched = LAUNCHER_PID in os.environ or len(self.launched) == cluster.world_size() - 1 > 0
        config = RendezvousConfig(
            cluster.main_address,
            cluster.main_port,
            cluster.global_rank(),
            cluster.world_size(),
            self.timeout,
            _make_check(self.launched),
        )
        if not dist.is_initialized():
            _job = self._join(config, max(self.timeout, _MIN_JOIN_TIMEOUT) if is_launched else self.timeout)
        elif _job is not None:
            # An earlier strategy of this process may have had another timeout.
            _job = replace(_job, config=replace(config, host=_job.config.host, port=_job.config.port))
        elif config.world_size > 1 and (endpoint := _find_store()):
            # The program, or Ray, made the process group.
            config = replace(config, host=endpoint[0], port=endpoint[1])
            _job = rendezvous(config, open_store(config, server=False))
        # Of an earlier launch of Fabric.
        self.close()
        if _job is not None and config.world_size > 1:
            self.watchdog = _find_watchdog(_job, self.launched, detects=self.failure_detection)
            self.watchdog.open()
            # Fabric does not tear its strategy down. At exit, the watchdog ends by itself.
            self._close = weakref.finalize(self, self.watchdog.close)
            self._close.atexit = False
        self.has_rank = True

    @property
    def is_joined(self) -> bool:
        """Whether there is a process group for the collectives of this strategy."""
        return self.has_rank and dist.is_initialized()

    def _join(self, config: RendezvousConfig, timeout: timedelta) -> RendezvousResult:
        """Join the other ranks, over the connection of the last rendezvous of this process at the same endpoint."""
        root = _job.root if _job is not None and _job.config.endpoint == config.endpoint else None
        attempt = replace(config, timeout=timeout)
        try:
            with quiet_logs():
                root = open_store(attempt, server=config.hosts_store) if root is None else root
        except RuntimeError:
            # The ranks that this process launched would wait for the same store, until their own timeout.
            for process in self.launched.values():
                process.kill()
            raise
        return replace(rendezvous(attempt, root), config=config)

    def init_process_group(self, cluster: ClusterEnvironment) -> None:
        """Create the default process group, unless the program made one, which must take hpu tensors."""
        if not dist.is_initialized() and _job is not None:
            # Without `device_id`, which Lightning passes from 2.5.5 on: torch wants one with an index.
            init_dist_connection(cluster, self.backend, timeout=self.timeout, store=_job.store())
            collectives.ignore_barrier_warning()
        elif not _supports_hpu(_backend_config()):
            raise RuntimeError(
                f"the process group must have a backend that takes hpu tensors, got {_backend_config()!r}: call "
                f"`init_process_group({BACKEND!r})`, or leave it to the strategy"
            )
        elif dist.get_backend() == "undefined":
            # Of a group made without a backend, torch takes gloo for the default one, which DDP then does not find.
            group = distributed_c10d._get_default_group()  # noqa: SLF001 - tests compare both with every torch.
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)  # noqa: SLF001

    def step(self, name: str) -> AbstractContextManager[None]:
        """Return the context of a step, see `Watchdog.step`."""
        return nullcontext() if self.watchdog is None else self.watchdog.step(name)

    def wait(self, name: str, group: Any | None = None) -> AbstractContextManager[None]:
        """Return the context of a call that waits for all ranks; those of a smaller group are not counted.

        Raises:
            RankFailedError: Another rank has failed.
            RuntimeError: This rank has failed.
        """
        is_of_all = group in {None, dist.group.WORLD}
        if self.error is not None or (is_of_all and self.leave_if_failed(name)):
            if self.watchdog is not None:
                self.watchdog.raise_if_peer_failed()
            raise RuntimeError(f"{name} needs all ranks, and this one has failed before: {self.error}")
        return nullcontext() if self.watchdog is None or not is_of_all else self.watchdog.wait(name)

    def wait_for_device(self) -> None:
        """Wait until the device has finished all work."""
        if self.watchdog is None:
            bridge.synchronize()
        else:
            self.watchdog.wait_for_device()

    def close(self) -> None:
        """Leave the watchdog. The process group stays, as everywhere in torch, and another strategy may use it."""
        if self.watchdog is not None:
            self._close()
            self.watchdog = None


def _find_watchdog(job: RendezvousResult, launched: LaunchedRanks, *, detects: bool) -> Watchdog:
    """Return the watchdog of this process, another one for another process group or timeout."""
    global _watchdog  # noqa: PLW0603 - a process has one.
    run = 0
    if _watchdog is not None:
        last = _watchdog.job
        is_same = (last.root, last.attempt) == (job.root, job.attempt)
        if is_same and last.config.timeout == job.config.timeout and _watchdog.detects == detects:
            return _watchdog
        # Not as in the store: the guard may not have published the last one.
        run = _watchdog.run if is_same else 0
        _watchdog.shutdown()
    _watchdog = Watchdog(job, launched, StepClock(bridge.new_event), detects=detects)
    _watchdog.run = run
    return _watchdog


def _find_store() -> tuple[str, int] | None:
    """Return host and port of the default process group's store; None if it is of another kind, as for all ranks."""
    store = distributed_c10d._get_default_store()  # noqa: SLF001 - tests compare it with every torch.
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, TCPStore) else None


def _make_check(launched: LaunchedRanks) -> Callable[[], None]:
    """Return a check of the processes around this one: its launcher, and the ranks that it launched."""
    launcher = os.environ.pop(LAUNCHER_PID, None)

    def check() -> None:
        for rank, reason in launched.exit_reasons().items():
            raise RankFailedError(f"rank {rank} exited before it joined: {reason}. See its own error")
        if launcher not in {None, str(os.getppid())}:
            raise RankFailedError(f"rank 0 of this machine (pid {launcher}), which launched this rank, exited")

    return check


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


def _backend_config() -> str:
    """Return the backends of the default process group by device, "cpu:gloo,hpu:hccl"; its backend on torch 2.0."""
    # `get_backend` has "undefined" for a process group that was made without one.
    config: str = dist.get_backend_config() if hasattr(dist, "get_backend_config") else dist.get_backend()
    return config


def _supports_hpu(backend: str) -> bool:
    if ":" in backend:
        backend = dict(pair.split(":", 1) for pair in backend.split(",") if ":" in pair).get("hpu", "")
    if _torch_2_0.IS_TORCH_2_0:
        return _torch_2_0.supports_hpu(backend)
    return "hpu" in dist.Backend.backend_capability.get(backend, ())


def _validate_timeout(timeout: timedelta | None) -> timedelta:
    if timeout is None:
        return TIMEOUT
    if not isinstance(timeout, timedelta):
        raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
    if timeout <= timedelta(0):
        raise ValueError(f"`timeout` must be more than 0 seconds, got {timeout.total_seconds():g} s")
    return timeout


ALONE: Final = ProcessGroupManager(None, None, failure_detection=False)
"""Manager of strategies for one device, which have no process group."""
