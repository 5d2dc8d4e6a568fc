"""Check of the collectives in one rank, and its start on all devices of a machine. It opens devices."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hpu_core import bridge, hccl
from hpu_core.launcher_env import LauncherEnv
from hpu_doctor.collectives.findings import find_faults, to_json
from hpu_doctor.collectives.measurement import HCCLCommunicator, RankReport, RankResult, measure
from hpu_doctor.rank_store import connect, gather, rank_variables

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# float32 elements in one MiB.
_ELEMENTS: Final = 1 << 18


def run_rank(env: LauncherEnv, *, mib: int, timeout: timedelta, slow_factor: float) -> dict[str, Any] | None:
    """Check the collectives of this rank.

    Args:
        env: Rank of this process and endpoint of its job.
        mib: Size of each rank's tensor in MiB.
        timeout: How long all collectives together may take.
        slow_factor: Report ranks or links this many times slower than the median.

    Returns:
        The report on rank 0, None on other ranks.

    Raises:
        RuntimeError: The store of the job cannot be opened.
    """
    size = -(-mib * _ELEMENTS // env.world_size) * env.world_size
    store = connect(env, timeout)
    results: list[RankResult] = []
    errors: list[str] = []
    phases: list[str] = []

    def work() -> None:
        try:
            # Over a connection of its own, which blocks while it waits for another rank.
            _init_process_group(env, connect(env, timeout), timeout)
            results.append(measure(env, HCCLCommunicator(), size, enter=phases.append))
        except Exception as error:  # noqa: BLE001 - rank 0 reports any error of any rank.
            errors.append(f"{type(error).__name__}: {error}".splitlines()[0])

    # In a thread, because a collective of HCCL waits without a timeout for a rank that does not join it.
    thread = threading.Thread(target=work, name="check-collectives", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    own = RankReport(result=results[0] if results else None, error=errors[0] if errors else None, phases=tuple(phases))
    values = gather(store, env, asdict(own))
    if values is None:
        return None
    reports = [None if value is None else RankReport.from_json(value) for value in values]
    return to_json(env.world_size, size, reports, find_faults(reports, slow_factor=slow_factor))


def run_on_all_devices(devices: int, arguments: Sequence[str]) -> int:
    """Run the command in one process for each device of this machine, and return the largest exit code of a rank."""
    command = [sys.executable, "-m", "hpu_doctor", *arguments]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **variables})  # noqa: S603 - this program.
        for variables in rank_variables(devices)
    ]
    return max(abs(process.wait()) for process in ranks)


def _init_process_group(env: LauncherEnv, store: "Store", timeout: timedelta) -> None:
    import torch.distributed as dist

    hccl.initialize_hccl(env.world_size, env.rank, env.local_rank)
    bridge.open_device()
    prefixed = dist.PrefixStore("hccl", store)  # type: ignore[attr-defined] # Public, but not for type checkers.
    dist.init_process_group("hccl", store=prefixed, rank=env.rank, world_size=env.world_size, timeout=timeout)
