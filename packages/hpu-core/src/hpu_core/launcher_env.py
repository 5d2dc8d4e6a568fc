"""Environment variables of launchers: those of torchrun, Open MPI, SLURM and Lightning itself.

No other module parses them. It needs no framework, so tools for broken installations can use it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

Launcher: TypeAlias = Literal["torchrun", "Open MPI", "SLURM"]

# Set by torchrun: its agent keeps the store at MASTER_PORT.
AGENT_STORE: Final = "TORCHELASTIC_USE_AGENT_STORE"
# Set by our launcher for the ranks that it starts.
LAUNCHER_PID: Final = "HPU_LAUNCHER_PID"

# More digits than any rank or port has. int() refuses thousands of digits with another message.
_MAX_DIGITS: Final = 9
_DEFAULT_PORT: Final = "29500"
# As in Lightning's SLURMEnvironment, so that jobs on one machine have different ports.
_SLURM_PORT: Final = 15000
_ENGINE_VARIABLES: Final = (AGENT_STORE, "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_RESTART_VARIABLES: Final = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
# Names of a SLURM job without a batch script, whose shell is no rank. As in Lightning's SLURMEnvironment.
_INTERACTIVE_JOBS: Final = frozenset({"bash", "interactive"})


class _Variables(NamedTuple):
    """Names of a launcher's variables."""

    launcher: Launcher
    rank: str
    local_rank: str
    world_size: str
    num_nodes: tuple[str, ...] = ()


_VARIABLES: Final = (
    _Variables("torchrun", "RANK", "LOCAL_RANK", "WORLD_SIZE", ("GROUP_WORLD_SIZE",)),
    _Variables("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Variables("SLURM", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherEnv:
    """Rank of this process and endpoint of its job, as its launcher set them.

    Attributes:
        launcher: "torchrun", "Open MPI" or "SLURM". Lightning and others set torchrun's variables.
        rank: Global rank of this process.
        local_rank: Rank on this machine.
        world_size: Number of ranks.
        address: Address of the machine of rank 0.
        port: Port of the store there.
    """

    launcher: Launcher
    rank: int
    local_rank: int
    world_size: int
    address: str
    port: str


def find_launcher_env(environ: Mapping[str, str] = os.environ) -> LauncherEnv | None:
    """Return the variables of the launcher that started this process; None if none did.

    Raises:
        ValueError: The job has several machines, and MASTER_ADDR is not set.
    """
    for names in _variables(environ):
        rank, local_rank, size = (
            parse_int(environ.get(name, "")) for name in (names.rank, names.local_rank, names.world_size)
        )
        if rank is None or local_rank is None or size is None:
            continue
        return LauncherEnv(
            launcher=names.launcher,
            rank=rank,
            local_rank=local_rank,
            world_size=size,
            address=environ.get("MASTER_ADDR") or _default_address(environ, names.launcher),
            port=environ.get("MASTER_PORT") or _default_port(environ, names.launcher),
        )
    return None


def global_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this process, also where its launcher sets no other variable; None if it is unknown."""
    return _first_int(environ, [names.rank for names in _variables(environ)])


def world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of ranks, also where the launcher sets no other variable; None if it is unknown."""
    return _first_int(environ, [names.world_size for names in _variables(environ)])


def num_nodes(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of machines of the job, None if the launcher does not set it."""
    return _first_int(environ, [name for names in _variables(environ) for name in names.num_nodes])


def is_started_by_engine(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun, Open MPI or SLURM started this process; Lightning's launcher sets none of these."""
    return any(name in environ for name in _ENGINE_VARIABLES) and not is_interactive_slurm(environ)


def is_restart(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun or SLURM has started this rank again, after a failure or a requeue."""
    return any(environ.get(name, "0") != "0" for name in _RESTART_VARIABLES)


def is_interactive_slurm(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process runs in an interactive shell of SLURM, such as that of `srun --pty bash`.

    Its SLURM variables describe the shell. Lightning ignores them as well.
    """
    return environ.get("SLURM_JOB_NAME") in _INTERACTIVE_JOBS


def parse_int(text: str) -> int | None:
    """Return the number that a variable has, None for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _variables(environ: Mapping[str, str]) -> Iterator[_Variables]:
    """Yield the names of each launcher, the most specific launcher first: torchrun may run within SLURM."""
    for names in _VARIABLES:
        if names.launcher != "SLURM" or not is_interactive_slurm(environ):
            yield names


def _first_int(environ: Mapping[str, str], names: list[str]) -> int | None:
    numbers = (parse_int(environ.get(name, "")) for name in names)
    return next((number for number in numbers if number is not None), None)


def _first_host(nodes: str) -> str:
    """Return the first host name of SLURM's list, such as "rack1-node01" of "rack[1-2]-node[01-04,7],other"."""
    first = re.match(r"(?:[^,\[]|\[[^]]*\])*", nodes)
    return "" if first is None else re.sub(r"\[([^],-]+)[^]]*\]", r"\1", first[0])


def _default_address(environ: Mapping[str, str], launcher: Launcher) -> str:
    if launcher == "SLURM":
        return _first_host(environ.get("SLURM_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "") or "127.0.0.1"
    if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "") == environ.get("OMPI_COMM_WORLD_SIZE"):
        return "127.0.0.1"
    raise ValueError(
        f"MASTER_ADDR must be the address of the machine of rank 0 for a job of {launcher} on several machines, and is "
        "not set: `mpirun -x MASTER_ADDR=HOST`"
    )


def _default_port(environ: Mapping[str, str], launcher: Launcher) -> str:
    number = environ.get("SLURM_JOB_ID", "")[-4:]
    return str(_SLURM_PORT + int(number)) if launcher == "SLURM" and number.isdecimal() else _DEFAULT_PORT
