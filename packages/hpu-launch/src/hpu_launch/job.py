"""Description of a job, and of how an engine starts it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters of an option beside its comment.
_WIDTH = 32
# Of Intel's machines, and of HABANA_VISIBLE_MODULES.
MAX_DEVICES = 8
# Above so many ranks Intel's Megatron-LM asks for a higher limit of open files: rank 0 has sockets for all of them.
_MANY_RANKS = 128
_RAISE_OPEN_FILES = 'ulimit -n "$(ulimit -Hn)"'


_KUBERNETES = "kubernetes kubernetes-mpi"


def _option(text: str, engines: str = "", default: Any = None, flag: str = "", **settings: Any) -> Any:
    """Return the field of an option of the command line.

    Args:
        text: Its help.
        engines: Engines that use it; "" for all.
        default: Its default.
        flag: Its name, unless it is the field's.
        settings: Arguments of `click.option`.
    """
    metadata = {"engines": engines.split(), "flag": flag, "settings": {"help": text, "default": default, **settings}}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Training script and the machines on which it runs: the options of the command line.

    Raises:
        ValueError: A value is out of its range.
    """

    script: str
    arguments: tuple[str, ...] = ()
    nodes: int = _option("Number of machines. [default: that of --hosts, else 1]", type=int)
    min_nodes: int | None = _option(
        "Continue with as few as this many machines; new ones join (torchrun).", "torchrun", type=int
    )
    devices: int = _option("Cards per machine.", default=8, show_default=True)
    name: str | None = _option("Name of the job; the script's by default.", f"torchrun slurm {_KUBERNETES} ray")
    address: str | None = _option("Address of the first machine, or of Ray's head.", "torchrun mpirun ray")
    port: int = _option(
        "Port of the rendezvous on the first machine.", f"torchrun mpirun {_KUBERNETES}", 29500, show_default=True
    )
    hosts: tuple[str, ...] = _option("Host names, separated by commas, also node-[001-128] (mpirun).", "mpirun", "")
    cpus: int | None = _option("CPU cores per rank.", f"mpirun slurm {_KUBERNETES} ray", type=int)
    max_restarts: int = _option(
        "Restarts after a failure (torchrun, kubernetes, ray).", f"torchrun {_KUBERNETES} ray", 0, show_default=True
    )
    time_limit: str | None = _option("Time limit, HH:MM:SS (slurm).", "slurm", flag="--time")
    gres: str | None = _option("The cluster's name of the cards, such as gpu:HL-225:8 (slurm).", "slurm")
    image: str | None = _option("Container image with SynapseAI and your program (kubernetes).", _KUBERNETES)
    memory: str | None = _option("Memory of each machine, such as 800Gi (kubernetes).", _KUBERNETES)
    volume: str | None = _option("Claim and path of the volume for checkpoints, CLAIM:PATH (kubernetes).", _KUBERNETES)
    namespace: str | None = _option("Namespace of the job (kubernetes).", _KUBERNETES)
    node_selector: Mapping[str, str] = _option(
        "Label of the machines. Repeatable (kubernetes).", _KUBERNETES, (), multiple=True, metavar="KEY=VALUE"
    )
    partition: str | None = _option("Partition of the cluster (slurm).", "slurm")
    account: str | None = _option("Account to charge (slurm).", "slurm")
    qos: str | None = _option("Quality of service (slurm).", "slurm")
    environment: Mapping[str, str] = _option(
        "Variable of the ranks. Repeatable.", default=(), flag="--env", multiple=True, metavar="NAME[=VALUE]"
    )
    python: str | None = _option("Python of the environment to run.  [default: that on PATH]")

    def __post_init__(self) -> None:
        for option, value, minimum in (
            ("--nodes", self.nodes, 1),
            ("--devices", self.devices, 1),
            ("--cpus", self.cpus, 1),
            ("--max-restarts", self.max_restarts, 0),
        ):
            if value is not None and value < minimum:
                raise ValueError(f"`{option}` must be at least {minimum}, got {value}")
        if self.devices > MAX_DEVICES:
            raise ValueError(
                f"`--devices` must be at most {MAX_DEVICES}, the cards of a machine, got {self.devices}: more cards "
                "are more machines, `--nodes`"
            )
        if self.min_nodes is not None and not 1 <= self.min_nodes <= self.nodes:
            raise ValueError(f"`--min-nodes` must be from 1 to `--nodes`, {self.nodes}, got {self.min_nodes}")
        if self.min_nodes is not None and self.max_restarts == 0:
            raise ValueError("`--max-restarts` must be at least 1 with `--min-nodes`: the ranks that are left restart")
        if not 1 <= self.port <= 65535:  # noqa: PLR2004 - the range of TCP ports.
            raise ValueError(f"`--port` must be from 1 to 65535, got {self.port}")
        if self.time_limit is not None and not re.fullmatch(r"(\d+-)?\d{1,2}:\d{2}:\d{2}", self.time_limit):
            raise ValueError(f"`--time` must be HH:MM:SS or DAYS-HH:MM:SS, got {self.time_limit!r}")
        self._check_names()
        self._check_resources()

    def _check_names(self) -> None:
        for option, value in (("--partition", self.partition), ("--account", self.account), ("--qos", self.qos)):
            if value is not None and not re.fullmatch(r"[\w.,:-]+", value, re.ASCII):
                raise ValueError(f"`{option}` must be a name of the cluster's, got {value!r}")
        for name in self.environment:
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                raise ValueError(f"`--env` must be NAME or NAME=VALUE, got {name!r}")
        if self.namespace is not None and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", self.namespace):
            raise ValueError(f"`--namespace` must be a name of Kubernetes, got {self.namespace!r}")
        if not re.fullmatch(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?", self.job_name):
            raise ValueError(
                "`--name` must be at most 53 lower-case letters, digits and dashes, and begin with a letter, got "
                f"{self.job_name!r}"
            )

    def _check_resources(self) -> None:
        if self.memory is not None and not re.fullmatch(r"[1-9]\d*(\.\d+)?[KMGT]i?", self.memory):
            raise ValueError(f"`--memory` must be a quantity of Kubernetes such as 800Gi, got {self.memory!r}")
        if self.volume is not None and not re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?:/[^:]*", self.volume):
            raise ValueError(
                f"`--volume` must be the name of a PersistentVolumeClaim and an absolute path, CLAIM:PATH, got "
                f"{self.volume!r}"
            )

    @property
    def job_name(self) -> str:
        """Name that SLURM and Kubernetes accept."""
        if self.name is not None:
            return self.name
        stem = re.sub("[^a-z0-9]+", "-", PurePath(self.script).stem.lower()).strip("-")[:50].strip("-")
        return stem if stem[:1].isalpha() else f"job-{stem}".strip("-")

    @property
    def ranks(self) -> int:
        """Number of ranks on all machines."""
        return self.nodes * self.devices

    @property
    def raise_open_files(self) -> str:
        """Shell command that raises the limit of open files, with a semicolon; empty if the job does not need it."""
        return f"{_RAISE_OPEN_FILES}; " if self.ranks > _MANY_RANKS else ""

    @property
    def program(self) -> list[str]:
        """The script with its arguments."""
        return [self.script, *self.arguments]

    @property
    def interpreter(self) -> str:
        """Python that runs the script."""
        return self.python or "python"

    @property
    def agent(self) -> list[str]:
        """Start of the command line of torchrun."""
        return ["torchrun"] if self.python is None else [self.python, "-m", "torch.distributed.run"]

    @property
    def assignments(self) -> list[str]:
        """Variables of the ranks as words of a shell, "NAME=VALUE"."""
        return [f"{name}={value}" for name, value in self.environment.items()]


@dataclass(frozen=True)
class Launch:
    """How an engine starts a job.

    Attributes:
        text: What a person reads: commented lines that the engine accepts.
        command: Command line that starts or submits the job.
        reads_text: Whether the command reads the text from its standard input.
        runs_here: Whether ranks run on this machine, so that its state matters.
        status: Command that shows the state of a job that was submitted; "" if the command is the job.
    """

    text: str
    command: list[str]
    reads_text: bool = False
    runs_here: bool = False
    status: str = ""


def describe_command(
    options: list[tuple[list[str], str]], notes: list[str], *, runs_here: bool, status: str = ""
) -> Launch:
    """Return the launch by a command line, with a comment for each group of its words.

    Args:
        options: Words of the command line, each group with a comment.
        notes: Sentences above it.
        runs_here: Whether ranks run on this machine.
        status: As in `Launch`.
    """
    groups = [(shlex.join(words), comment) for words, comment in options]
    lines = [f"# {note}" for note in notes]
    lines += [f"#   {_shorten(text):<{_WIDTH}}  {comment}" for text, comment in groups]
    lines.append(" \\\n    ".join(text for text, _ in groups))
    return Launch(
        "\n".join(lines), [word for words, _ in options for word in words], runs_here=runs_here, status=status
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4]} ..."
