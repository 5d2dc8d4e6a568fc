"""Ranks of a job: their variables, and exchange of values between them through the store of the job.

It uses no collective of the devices, so the ranks can report even where those fail.
"""

import contextlib
import json
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hpu_core.launcher_env import LauncherEnv

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


def rank_variables(count: int) -> list[dict[str, str]]:
    """Return the variables of each rank of a new job on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [{**job, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def connect(env: LauncherEnv, timeout: timedelta) -> "Store":
    """Connect to the store of the job, which rank 0 or torchrun's agent serves.

    Args:
        env: Rank of this process and endpoint of its job.
        timeout: How long to wait for rank 0, and for keys.

    Raises:
        RankFailedError: Rank 0 does not answer.
        RuntimeError: The store cannot be opened.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined] # Not for type checkers.

    from hpu_core.distributed.store import RendezvousConfig, open_store

    config = RendezvousConfig(env.address, int(env.port), env.rank, env.world_size, timeout)
    prefixed: Store = PrefixStore("hpu-doctor", open_store(config, server=config.hosts_store))
    return prefixed


def gather(store: "Store", env: LauncherEnv, value: Any) -> list[Any] | None:
    """Send a value to rank 0.

    Args:
        store: Store of the job.
        env: Rank of this process.
        value: What `json` can serialize.

    Returns:
        On rank 0 the value of each rank, None for a rank that has not sent one in time; None on other ranks.
    """
    store.set(f"value/{env.rank}", json.dumps(value))
    if env.rank != 0:
        return None
    keys = [f"value/{rank}" for rank in range(env.world_size)]
    # One wait for all ranks: a wait for each would add up where many of them are missing.
    with contextlib.suppress(RuntimeError, TimeoutError):
        store.wait(keys)
    return [json.loads(store.get(key)) if store.check([key]) else None for key in keys]
