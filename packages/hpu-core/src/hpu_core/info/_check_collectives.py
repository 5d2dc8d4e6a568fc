"""The run of `hpu-info check-collectives` in one rank, and its start on all devices of a machine. It opens devices."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hpu_core import bridge, hccl
from hpu_core.info._collectives import RankReport, RankResult, diagnose, measure, to_json
from hpu_core.info._job import Job, exchange

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_c10d import Store

# float32 elements in one MiB.
_ELEMENTS: Final = 1 << 18


class HCCLCommunicator:
    """Collectives of torch's default process group."""

    def all_reduce(self, tensor: "Tensor") -> None:
        """Sum a tensor over all ranks, in place."""
        import torch.distributed as dist

        dist.all_reduce(tensor)

    def all_gather(self, output: "Tensor", tensor: "Tensor") -> None:
        """Write the tensors of all ranks to `output`."""
        import torch.distributed as dist

        dist.all_gather(list(output.chunk(dist.get_world_size())), tensor)

    def reduce_scatter(self, output: "Tensor", tensor: "Tensor") -> None:
        """Write this rank's part of the sum over all ranks to `output`."""
        import torch.distributed as dist

        dist.reduce_scatter(output, list(tensor.chunk(dist.get_world_size())))

    def shift(self, output: "Tensor", tensor: "Tensor", distance: int) -> None:
        """Send a tensor to the rank `distance` after this one, and receive one from the rank as far before it."""
        import torch.distributed as dist

        rank, size = dist.get_rank(), dist.get_world_size()
        operations = [
            dist.P2POp(dist.isend, tensor, (rank + distance) % size),
            dist.P2POp(dist.irecv, output, (rank - distance) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def barrier(self) -> None:
        """Wait until all ranks are here and their devices are idle."""
        from hpu_core import collectives

        collectives.barrier()

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        bridge.synchronize()


def run_rank(job: Job, *, mib: int, timeout: timedelta, slow_factor: float) -> dict[str, Any] | None:
    """Check the collectives of this rank.

    Args:
        job: The job.
        mib: Size of each rank's tensor in MiB.
        timeout: How long all collectives together may take.
        slow_factor: How many times slower than the others a rank or link is that is reported.

    Returns:
        The report on rank 0, None on other ranks.

    Raises:
        RuntimeError: The store of the job cannot be opened.
    """
    size = -(-mib * _ELEMENTS // job.world_size) * job.world_size
    store = job.connect(timeout)
    results: list[RankResult] = []
    errors: list[str] = []
    phases: list[str] = []

    def work() -> None:
        try:
            # Over a connection of its own, which blocks while it waits for another rank.
            _init_process_group(job, job.connect(timeout), timeout)
            results.append(measure(job, HCCLCommunicator(), size, enter=phases.append))
        except Exception as error:  # noqa: BLE001 - rank 0 reports any error of any rank.
            errors.append(f"{type(error).__name__}: {error}".splitlines()[0])

    # In a thread, because a collective of HCCL waits without a timeout for a rank that does not join it.
    thread = threading.Thread(target=work, name="check-collectives", daemon=True)
    thread.start()
    thread.join(timeout.total_seconds())
    own = RankReport(result=results[0] if results else None, error=errors[0] if errors else None, phases=tuple(phases))
    values = exchange(store, job, asdict(own))
    if values is None:
        return None
    reports = [None if value is None else RankReport.from_json(value) for value in values]
    return to_json(job, size, reports, diagnose(reports, slow_factor=slow_factor))


def run_on_all_devices(devices: int, arguments: Sequence[str]) -> int:
    """Run the command in one process for each device of this machine, and return the largest exit code of a rank.

    Args:
        devices: Number of devices.
        arguments: Arguments of `hpu-info`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(devices)}
    command = [sys.executable, "-m", "hpu_core.info", *arguments]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})  # noqa: S603 - this program.
        for rank in range(devices)
    ]
    return max(abs(process.wait()) for process in ranks)


def _init_process_group(job: Job, store: "Store", timeout: timedelta) -> None:
    import torch.distributed as dist

    hccl.initialize_hccl(job.world_size, job.rank, job.local_rank)
    bridge.open_device()
    prefixed = dist.PrefixStore("hccl", store)  # type: ignore[attr-defined] # Public, but not for type checkers.
    dist.init_process_group("hccl", store=prefixed, rank=job.rank, world_size=job.world_size, timeout=timeout)
