"""Exchange of values between the ranks of a job through its store.

It uses no collective of the devices, so the ranks can report even where those fail.
"""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hpu_core.launcher_env import LauncherEnv

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


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
    values = []
    for rank in range(env.world_size):
        text = _get(store, f"value/{rank}")
        if text is None:
            # The next ranks have had their time as well.
            store.set_timeout(timedelta(seconds=1))
        values.append(None if text is None else json.loads(text))
    return values


def format_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3" or "ranks 1, 3"."""
    numbers = [str(rank) for rank in ranks]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _get(store: "Store", key: str) -> str | None:
    """Return a value of the store, None if no rank has set it before the store's timeout."""
    try:
        return store.get(key).decode()
    except (RuntimeError, TimeoutError):
        return None
