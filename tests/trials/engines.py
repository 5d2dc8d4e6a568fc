"""Train on simulated cards with the real engines that are installed, and print a table of what happened.

    python tests/trials/engines.py [ENGINE...]

`nox -s engines` calls it. Each row starts its job by `hpu-launch --run` and compares every rank with a run without an
engine: weights bit for bit, and the loss. In most rows a rank, the engine's command or a machine is killed. Network
namespaces are the machines that torchrun may lose and get.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, Ranks, Table, are_equal, find_pids, finish, kill, parser, results, start, wait
from hpu_testing import Network, Program, free_port
from hpu_testing.network import can_create_networks
from slurm import can_start, cluster, has_ended, job_field, query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

_LIMIT = 900.0
# Batches of an epoch on two ranks.
_BATCHES = 4
# Epochs of a job that is ended from outside: no rank finishes them before. And of the others.
_LONG, _SHORT = 100, 4
# A machine that runs this may have fewer cores than ranks; Open MPI 4 and 5 spell it differently. Ray's own limit is
# too short for a busy machine, and Ray would listen on all addresses. SLURM would write where the job starts, and anew
# at each start.
_VARIABLES = {
    "PT_HPU_LAZY_MODE": "0",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "SBATCH_EXPORT": "ALL",
    "SBATCH_OPEN_MODE": "append",
}


class Job:
    """Context manager of a training by an engine; leaving it kills what is left.

    Args:
        engine: Engine of `hpu-launch`; None for a run without one.
        folder: Folder of its checkpoints and results.
        *options: Options of training.py.
        ranks: Number of its ranks.
        launch: Options of `hpu-launch`.
        machine: Folder that names the machine, of four cards; by default `folder`.
        **variables: More environment variables.
    """

    def __init__(
        self,
        engine: str | None,
        folder: Path,
        *options: str,
        ranks: int = 2,
        launch: tuple[str, ...] = (),
        machine: Path | None = None,
        **variables: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.engine = engine
        self.folder = folder
        self._log = folder / "slurm.log"
        launcher = [sys.executable]
        if engine is not None:
            launcher = [str(BIN / "hpu-launch"), "--engine", engine, "--devices", str(ranks)]
            # SLURM and Ray choose their own port.
            launcher += ["--port", str(free_port())] if engine in {"torchrun", "mpirun"} else []
            launcher += [*launch, "--run"]
        self._stack = contextlib.ExitStack()
        self._network = Network(1) if engine == "ray" and can_create_networks() else None
        if self._network is not None:
            # The store that Ray's workers make listens on all addresses.
            launcher = self._network.command(0, launcher)
        own = _VARIABLES | {"SBATCH_OUTPUT": str(self._log)} | variables
        common = ("--checkpoints", f"--devices={ranks}")
        self.program = start(folder, *common, *options, launcher=launcher, cards=4, machine=machine, variables=own)

    def __enter__(self) -> Self:
        if self._network is not None:
            self._stack.enter_context(self._network)
        self._stack.enter_context(self.program)
        return self

    def __exit__(self, *_: object) -> None:
        if self.number:
            query("scancel", self.number)
        kill(*find_pids(self.folder))
        self._stack.close()

    @property
    def output(self) -> str:
        """Output so far."""
        return self.program.output + (self._log.read_text() if self._log.exists() else "")

    @property
    def number(self) -> str:
        """Number of SLURM's job; empty where there is none."""
        match = re.search(r"Submitted batch job (\d+)", self.program.output)
        return match[1] if match is not None else ""

    def wait_for(self, is_done: Callable[[], bool]) -> str:
        """Wait, and return the seconds.

        Raises:
            TimeoutError: It takes too long; the message has the output of the job.
        """
        began = time.monotonic()
        if not wait(is_done, _LIMIT):
            raise TimeoutError(self.output)
        return f"{time.monotonic() - began:.0f}"

    def wait_for_checkpoint(self) -> None:
        """Wait for the first checkpoint."""
        self.wait_for((self.folder / "checkpoints" / "last.ckpt").exists)

    def wait_for_end(self) -> bool:
        """Wait for the last process, and return whether the engine reports success."""
        if self.engine == "slurm":
            # sbatch returns at once.
            self.program.wait(_LIMIT)
            self.wait_for(lambda: has_ended(self.number))
            return job_field(self.number, "JobState") == "COMPLETED"
        return not any(finish(self.folder, [self.program], _LIMIT).codes)

    def pids(self, program: str = "python") -> list[int]:
        """Return the processes of the job that run a program."""
        return find_pids(self.folder, program)

    def is_as(self, expected: Ranks, *, resumed: bool) -> bool:
        """Return whether every rank ended as expected, and whether it resumed from a checkpoint or not."""
        ranks = results(self.folder)
        return are_equal(ranks, expected) and all((rank["first_epoch"] != 0) is resumed for rank in ranks.values())


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        engine: Engine of `hpu-launch`.
        what: What is done, in a few words.
        ranks: Number of ranks, each with a card.
        kills_rank: Whether rank 1 kills itself, once.
        action: What is done to the job after its first checkpoint.
        launch: Options of `hpu-launch`.
        restarts: Whether the engine starts the ranks again; otherwise the command is run again.
    """

    engine: str
    what: str
    ranks: int = 2
    kills_rank: bool = False
    action: Callable[[Job], object] | None = None
    launch: tuple[str, ...] = ()
    restarts: bool = False

    @property
    def epochs(self) -> int:
        """Length of the training."""
        return _LONG if self.action else _SHORT

    def run(self, folder: Path, expected: Ranks) -> tuple[str, bool]:
        """Run the job, and return the seconds and whether it ended as expected."""
        fails = self.kills_rank or self.action is not None
        options = [f"--epochs={self.epochs}"]
        if self.kills_rank:
            # Once, in the second batch of the third epoch.
            options += ["--fault=killed", "--rank=1", f"--call={2 * _BATCHES + 1}", f"--once={folder / 'killed'}"]
        times: list[str] = []
        is_right = True
        for is_last in [False, True] if fails and not self.restarts else [True]:
            began = time.monotonic()
            with Job(
                self.engine, folder / "job", *options, ranks=self.ranks, launch=self.launch, machine=folder
            ) as job:
                if self.action and not times:
                    job.wait_for_checkpoint()
                    self.action(job)
                    times.append(job.wait_for(lambda job=job: not job.pids()))  # type: ignore[misc]
                    began = time.monotonic()
                is_right &= job.wait_for_end() is is_last
                if is_last or not self.action:
                    times.append(f"{time.monotonic() - began:.0f}")
                is_right &= not is_last or job.is_as(expected, resumed=fails)
                if not is_right:
                    print(job.output, results(job.folder), expected, sep="\n", file=sys.stderr)
        return " + ".join(times), is_right


# Ranks are killed in jobs of two. With four, the order of sums depends on the place in a bucket, and DDP rebuilds its
# buckets after the first step of a process, so a resumed run rounds differently: docs/records/engines.md has figures.
CASES = [
    Case("torchrun", "train"),
    Case("torchrun", "kill rank 1", kills_rank=True, launch=("--max-restarts", "1"), restarts=True),
    Case("torchrun", "kill torchrun's agent, start again", action=lambda job: kill(job.program.pid)),
    Case("mpirun", "train, no mpi4py", ranks=4),
    Case("mpirun", "kill rank 1, start again", kills_rank=True),
    Case("mpirun", "kill mpirun, start again", action=lambda job: kill(job.program.pid)),
    Case("slurm", "train with srun", ranks=4),
    Case("slurm", "kill rank 1, submit again", kills_rank=True),
    Case("slurm", "scontrol requeue", action=lambda job: query("scontrol", "requeue", job.number), restarts=True),
    Case("slurm", "kill srun, submit again", action=lambda job: kill(*job.pids("srun"))),
    Case("ray", "kill rank 1", kills_rank=True, launch=("--max-restarts", "1"), restarts=True),
]
# What prints the version of each engine; its first word is the program that the engine needs.
VERSIONS = {
    "torchrun": ("torchrun", "-c", "import torch; print('torch', torch.__version__)"),
    "mpirun": ("mpirun", "--version"),
    "slurm": ("sbatch", "--version"),
    "ray": ("ray", "-c", "import ray; print('Ray', ray.__version__)"),
}


def resize(folder: Path, strategy: str, ranks: int, *sizes: int) -> Iterator[tuple[str, str, bool]]:
    """Run a torchrun job on machines that are lost and join; the ranks resume by themselves from the last checkpoint.

    After each change, the validation loss before the first step must be that of the checkpoint.

    Args:
        folder: Folder of the job.
        strategy: Strategy of the training; checkpoints of FSDP have a file for each rank.
        ranks: Number of ranks of a machine.
        *sizes: Number of machines at the start, then after each change.
    """
    port = str(free_port())
    options = (f"--strategy={strategy}", "--checkpoints", f"--devices={ranks}", "--timeout=30")
    launch = [str(BIN / "hpu-launch"), "--engine", "torchrun", "--devices", str(ranks), "--max-restarts", "9"]
    launch += ["--nodes", str(max(sizes)), "--min-nodes", str(min(sizes)), "--port", port, "--no-checks", "--run"]

    def read(name: str) -> list[tuple[int, float]]:
        """Return the numbers of ranks and epochs of starts.txt, or the steps and losses of losses.txt."""
        lines = (folder / name).read_text().splitlines() if (folder / name).exists() else []
        return [(int(first), float(second)) for first, second in map(str.split, lines)]

    with Network(max(sizes)) as network, contextlib.ExitStack() as stack:
        programs: list[Program] = []

        def join(machine: int) -> None:
            # The namespaces have no host names of their own, by which torchrun finds out on which machine it runs.
            own = {"PET_LOCAL_ADDR": network.address(machine), "PET_RDZV_CONF": f"is_host={int(machine == 0)}"}
            program = start(
                folder,
                *options,
                f"--until={folder / 'end'}",
                launcher=network.command(machine, [*launch, "--address", network.address(0)]),
                cards=ranks,
                machine=folder / f"machine-{machine}",
                variables=_VARIABLES | own,
            )
            programs.append(stack.enter_context(program))

        def wait_for(machines: int, after: int) -> str:
            """Wait for a start with so many machines and a validation of its training, and return the seconds."""
            began = time.monotonic()
            count = len(read("losses.txt"))
            if not wait(lambda: any(each == machines * ranks for each, _ in read("starts.txt")[after:]), _LIMIT):
                raise TimeoutError("\n".join(program.output for program in programs))
            seconds = time.monotonic() - began
            wait(lambda: len(read("losses.txt")) > count + 1, _LIMIT)
            return f"{seconds:.0f}"

        for machine in range(sizes[0]):
            join(machine)
        wait_for(sizes[0], 0)
        wait((folder / "checkpoints" / "last.ckpt").exists, _LIMIT)
        for before, now in pairwise(sizes):
            after = len(read("starts.txt"))
            for machine in range(now, before):
                network.cut(machine)
                network.kill(machine)
            if now > before:
                network.connect()
            for machine in range(before, now):
                join(machine)
            seconds = wait_for(now, after)
            yield f"{strategy}, {ranks} ranks a machine: {before} machines, then {now}", seconds, True
        epochs = [epoch for _, epoch in read("starts.txt")]
        (folder / "end").touch()
        codes = finish(folder, programs, _LIMIT).codes
        resumed = list(find_resumed(read("losses.txt")))
        is_right = codes[0] == 0 == epochs[0] and epochs == sorted(epochs) and len(resumed) >= len(sizes) - 1
        is_right &= all(abs(first - second) < 1e-5 * abs(first) for first, second in resumed)
        yield f"end; epochs {epochs}, losses before and after {resumed}", "", is_right


def find_resumed(losses: Sequence[tuple[int, float]]) -> Iterator[tuple[float, float]]:
    """Yield the loss of each checkpoint from which a training was resumed, and the loss right after that.

    Args:
        losses: Step and loss of each validation.
    """
    for index, (step, loss) in enumerate(losses[1:], 1):
        if step <= losses[index - 1][0]:
            yield next(earlier for number, earlier in reversed(losses[:index]) if number == step), loss


def rows(engine: str, folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield what was done with an engine, the seconds, and whether it was as expected."""
    expected: dict[tuple[int, int], Ranks] = {}
    for index, case in enumerate(case for case in CASES if case.engine == engine):
        key = case.ranks, case.epochs
        if key not in expected:
            with Job(None, folder / f"alone-{case.ranks}-{case.epochs}", f"--epochs={key[1]}", ranks=key[0]) as job:
                job.wait_for_end()
                expected[key] = results(job.folder)
        (place := folder / str(index)).mkdir()
        options = f", {' '.join(case.launch)}" if case.launch else ""
        yield f"{case.ranks} ranks: {case.what}{options}", *case.run(place, expected[key])
    if engine == "torchrun" and can_create_networks():
        (place := folder / "machines").mkdir()
        yield from resize(place, "ddp", 1, 2, 1, 2)
        (place := folder / "sharded").mkdir()
        yield from resize(place, "fsdp", 2, 4, 3, 4)


def main() -> int:
    """Run the cases, and print the table; return 1 if one is not as expected."""
    arguments = parser(__doc__)
    arguments.add_argument("engines", nargs="*", help="all by default", metavar="ENGINE")
    options = arguments.parse_args()
    table = Table("engine", "what was done", "seconds (simulated)", options=options)
    for engine in options.engines or VERSIONS:
        program, *words = VERSIONS[engine]
        command = shutil.which(program, path=f"{BIN}:{os.environ['PATH']}")
        if command is None or (engine == "slurm" and not can_start()):
            reason = "needs root and slurm-wlm and munge" if engine == "slurm" else f"`{program}` is not installed"
            table.add(engine, f"not run: {reason}", "")
            continue
        version = [sys.executable if words[0] == "-c" else command, *words]
        with contextlib.ExitStack() as stack:
            folders = [
                Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engines-", ignore_cleanup_errors=True)))
                for _ in range(2)
            ]
            if engine == "slurm":
                # sbatch needs a configuration even for its version.
                stack.enter_context(cluster(folders[1]))
            name = subprocess.run(version, capture_output=True, text=True, check=True).stdout.splitlines()[0]
            for text, seconds, is_right in rows(engine, folders[0]):
                table.add(name, text, seconds, problems=[] if is_right else ["not as expected"])
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
