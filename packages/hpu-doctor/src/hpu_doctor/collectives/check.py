"""Check of the collectives in one rank, which reports through the store of the job: it works where collectives fail."""

import contextlib
import json
import threading
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined] # Public, but not for type checkers.

from hpu_core import bridge, hccl
from hpu_core.distributed.rendezvous import Job, open_store
from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.collectives.issues import find_issues, to_json
from hpu_doctor.collectives.measurement import HCCLGroup, RankReport, measure

# float32 elements in one MiB.
_ELEMENTS: Final = 1 << 18


def run_rank(env: LauncherEnv, *, mib: int, timeout: timedelta) -> dict[str, Any] | None:
    """Check the collectives of this rank.

    Args:
        env: Rank of this process and endpoint of its job.
        mib: Size of each rank's tensor in MiB.
        timeout: How long all collectives together may take.

    Returns:
        The report on rank 0, None on other ranks.

    Raises:
        RuntimeError: The store of the job cannot be opened.
    """
    size = -(-mib * _ELEMENTS // env.world_size) * env.world_size
    store = connect(env, timeout)
    reports: list[RankReport] = []
    phases: list[str] = []

    def work() -> None:
        try:
            # Over a connection of its own, which blocks while it waits for another rank.
            _init_process_group(env, connect(env, timeout), timeout)
            reports.append(measure(env, HCCLGroup(), size, phases.append))
        except Exception as error:  # noqa: BLE001 - rank 0 reports any error of any rank.
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            reports.append(RankReport(rank=env.rank, error=message, phases=phases))

    # In a thread, because a collective of HCCL waits without a timeout for a rank that does not join it.
    thread = threading.Thread(target=work, name="check-collectives", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    own = reports[0] if reports else RankReport(rank=env.rank, phases=phases)
    values = gather(store, env, asdict(own))
    if values is None:
        return None
    received = [None if value is None else RankReport.from_json(value) for value in values]
    return to_json(env.world_size, size, received, find_issues(received))


def _init_process_group(env: LauncherEnv, store: Store, timeout: timedelta) -> None:
    hccl.initialize_hccl(env.world_size, env.rank, env.local_rank)
    bridge.open_device()
    dist.init_process_group(
        "hccl", store=PrefixStore("hccl", store), rank=env.rank, world_size=env.world_size, timeout=timeout
    )


def connect(env: LauncherEnv, timeout: timedelta) -> Store:
    """Connect to the store of the job, which rank 0 or torchrun's agent serves.

    Args:
        env: Rank of this process and endpoint of its job.
        timeout: How long to wait for rank 0, and for keys.

    Raises:
        RankFailedError: Rank 0 does not answer.
        RuntimeError: The store cannot be opened.
    """
    job = Job(env.address, int(env.port), env.rank, env.local_rank, env.world_size, timeout)
    return PrefixStore("hpu-doctor", open_store(job, job.timeout))


def gather(store: Store, env: LauncherEnv, value: Any) -> list[Any] | None:
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
    # The expected value comes back where there is none; torch 2.0 has no other way to ask.
    return [json.loads(store.compare_set(key, "null", "null")) for key in keys]
