"""Jobs for tests: ranks of this process, for whose processes threads stand, and stores."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from subprocess import Popen
from typing import TYPE_CHECKING
from unittest import mock

from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.store import RendezvousConfig, open_store
from hpu_testing import free_port

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore
else:
    from torch.distributed import HashStore

__all__ = ["broken_store", "join", "launched_process"]


def join(world_size: int, timeout: float) -> list[RendezvousResult]:
    """Return the rendezvous results of the ranks of a job, in order.

    Args:
        world_size: Number of ranks.
        timeout: The strategies' timeout in seconds.
    """
    port, limit = free_port(), timedelta(seconds=timeout)
    configs = [RendezvousConfig("127.0.0.1", port, rank, world_size, limit) for rank in range(world_size)]
    # Torch 2.0 holds Python's lock while a client waits for the store, which another thread could then not open.
    roots = [open_store(configs[0], server=True), *[None] * (world_size - 1)]
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(rendezvous, configs, roots))


def broken_store() -> mock.Mock:
    """Return a store whose connection is broken, also for an exchange that has begun."""
    error = RuntimeError("Connection reset by peer")
    store: mock.Mock = mock.create_autospec(HashStore, instance=True)
    store.configure_mock(**{f"{name}.side_effect": error for name in ("set", "get", "multi_get", "add")})
    return store


def launched_process(code: int | None = None) -> mock.Mock:
    """Return the process of a launched rank, which has exited with this code if there is one."""
    process: mock.Mock = mock.create_autospec(Popen, instance=True)
    process.poll.return_value, process.pid = code, 1
    return process
