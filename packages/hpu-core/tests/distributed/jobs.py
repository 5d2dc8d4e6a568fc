"""Jobs for tests: ranks of this process, for whose processes threads stand, and stores."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest import mock

from hpu_core.distributed.rendezvous import RendezvousResult, rendezvous
from hpu_core.distributed.store import RendezvousConfig, open_store
from hpu_testing import free_port

__all__ = ["broken_store", "join"]


def join(world_size: int, timeout: float) -> list[RendezvousResult]:
    """Return the rendezvous results of the ranks of a job, in order.

    Args:
        world_size: Number of ranks.
        timeout: The strategies' timeout in seconds.
    """
    port, limit = free_port(), timedelta(seconds=timeout)
    configs = [RendezvousConfig("127.0.0.1", port, rank, rank, world_size, limit) for rank in range(world_size)]
    # Torch 2.0 holds Python's lock while a client waits for the store, which another thread could then not open.
    roots = [open_store(configs[0], server=True), *[None] * (world_size - 1)]
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(rendezvous, configs, roots))


def broken_store() -> mock.Mock:
    """Return a store whose connection is broken, also for an exchange that has begun."""
    fail = mock.Mock(side_effect=RuntimeError("Connection reset by peer"))
    return mock.Mock(set=fail, get=fail, add=fail)
