"""Ranks of the job that this process belongs to, by the variables of torchrun, Open MPI or SLURM, and their store.

It uses no collective of the devices, so the ranks can report even where those fail.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# Variables of the rank, the rank on this machine and the number of ranks.
_LAUNCHERS: Final = {
    "torchrun": ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
}
_DEFAULT_PORT: Final = "29500"
# As Lightning's SLURMEnvironment does, so that jobs on one machine have different ports.
_SLURM_PORT: Final = 15000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Ranks of a job, as this process sees them.

    Attributes:
        rank: Global rank of this process.
        local_rank: Rank on this machine.
        world_size: Number of ranks.
        address: Address of the machine of rank 0.
        port: Port of the store there.
    """

    rank: int
    local_rank: int
    world_size: int
    address: str
    port: str

    def connect(self, timeout: timedelta) -> "Store":
        """Connect to the store of the job, which rank 0 or torchrun's agent serves.

        Args:
            timeout: How long to wait for rank 0, and for keys.

        Raises:
            RankFailedError: Rank 0 does not answer.
            RuntimeError: The store cannot be opened.
        """
        from torch.distributed import PrefixStore  # type: ignore[attr-defined] # Not for type checkers.

        from hpu_core.distributed.store import RendezvousConfig, open_store

        config = RendezvousConfig(self.address, int(self.port), self.rank, self.world_size, timeout)
        prefixed: Store = PrefixStore("hpu-info", open_store(config, server=config.hosts_store))
        return prefixed


def find_job(environ: Mapping[str, str] = os.environ) -> Job | None:
    """Return the job of this process; None if no launcher started it.

    Args:
        environ: Environment of the process.

    Raises:
        ValueError: The job has several machines, and MASTER_ADDR is not set.
    """
    for launcher, names in _LAUNCHERS.items():
        numbers = [environ.get(name, "") for name in names]
        if not all(number.isdecimal() for number in numbers):
            continue
        rank, local_rank, world_size = map(int, numbers)
        address = environ.get("MASTER_ADDR") or _default_address(environ, launcher)
        port = environ.get("MASTER_PORT") or _default_port(environ, launcher)
        return Job(rank=rank, local_rank=local_rank, world_size=world_size, address=address, port=port)
    return None


def first_host(nodes: str) -> str:
    """Return the first host name of SLURM's list, such as "node-01" of "node-[01-04,7],other".

    Args:
        nodes: The list.
    """
    match = re.match(r"([^,\[]+)(?:\[([^],-]+)[^]]*\]([^,\[]*))?", nodes)
    return "" if match is None else "".join(part or "" for part in match.groups())


def exchange(store: "Store", job: Job, value: Any) -> list[Any] | None:
    """Send a value to rank 0.

    Args:
        store: Store of the job.
        job: The job.
        value: What `json` can serialize.

    Returns:
        On rank 0 the value of each rank, None for a rank that has not sent one in time; None on other ranks.
    """
    store.set(f"value/{job.rank}", json.dumps(value))
    if job.rank != 0:
        return None
    values = []
    for rank in range(job.world_size):
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


def _default_address(environ: Mapping[str, str], launcher: str) -> str:
    if launcher == "SLURM":
        return first_host(environ.get("SLURM_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "") or "127.0.0.1"
    if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "") == environ.get("OMPI_COMM_WORLD_SIZE"):
        return "127.0.0.1"
    raise ValueError(
        f"MASTER_ADDR must be the address of the machine of rank 0 for a job of {launcher} on several machines, and is "
        "not set: `mpirun -x MASTER_ADDR=HOST`"
    )


def _default_port(environ: Mapping[str, str], launcher: str) -> str:
    number = environ.get("SLURM_JOB_ID", "")[-4:]
    return str(_SLURM_PORT + int(number)) if launcher == "SLURM" and number.isdecimal() else _DEFAULT_PORT
