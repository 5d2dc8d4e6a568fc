"""Jobs of a SLURM cluster that are requeued, preempted, killed and cancelled, and jobs that share a machine.

Each job is the script that `hpu-launch --engine slurm` prints, and trains as training.py does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpu_testing import machine_env
from jobs import BIN, VARIABLES, Results, are_equal, find_pids, results, script
from slurm_cluster import query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LIMIT = 600.0
_DONE = frozenset({"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"})

Rows = list[tuple[str, str, bool]]


@dataclass(frozen=True)
class SlurmJob:
    """A job that was submitted.

    Attributes:
        number: Its number.
        folder: Folder of its checkpoints and results.
        ranks: Number of its ranks.
    """

    number: str
    folder: Path
    ranks: int

    @classmethod
    def submit(
        cls, folder: Path, *arguments: str, options: tuple[str, ...] = (), partition: str = "low", cards: int = 4
    ) -> SlurmJob:
        """Submit a job of two ranks.

        Args:
            folder: Folder of its checkpoints and results.
            *arguments: Options of the training.
            options: Options of `hpu-launch`.
            partition: Partition of the cluster.
            cards: Number of cards of the machine, which all jobs below one parent folder share.

        Raises:
            RuntimeError: SLURM refuses the job.
        """
        folder.mkdir(exist_ok=True)
        launch = [str(BIN / "hpu-launch"), "--engine", "slurm", "--devices", "2", *options]
        launch += script(folder, 2, *arguments)
        text = subprocess.run(launch, capture_output=True, text=True, check=True).stdout
        environment = machine_env(cards, folder.parent, **VARIABLES)
        command = ["sbatch", "--parsable", "--export=ALL", f"--partition={partition}", f"--output={folder}/slurm.log"]
        command += ["--open-mode=append"]
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return cls(done.stdout.strip(), folder, 2)

    def field(self, name: str) -> str:
        """Return a field of `scontrol show job`, "JobState"."""
        match = re.search(rf"\b{name}=(\S+)", query("scontrol", "--oneliner", "show", "job", self.number))
        return match[1] if match is not None else ""

    def has_ended(self) -> bool:
        """Return whether the job will not run again by itself."""
        return self.field("JobState") in _DONE

    def wait(self) -> str:
        """Wait for the end, and return the state."""
        self.wait_for(self.has_ended)
        return self.field("JobState")

    def wait_for(self, is_done: Callable[[], bool]) -> str:
        """Wait, and return the seconds.

        Raises:
            TimeoutError: It takes too long; the message has the output of the job.
        """
        began = time.monotonic()
        while not is_done():
            if time.monotonic() - began > _LIMIT:
                raise TimeoutError((self.folder / "slurm.log").read_text())
            time.sleep(0.1)
        return f"{time.monotonic() - began:.0f}"

    def wait_for_checkpoint(self) -> None:
        """Wait for the first checkpoint."""
        self.wait_for((self.folder / "checkpoints" / "last.ckpt").exists)

    def pids(self, program: str = "python") -> list[int]:
        """Return the processes of the job that run a program."""
        return find_pids(self.folder, program)

    def kill(self, program: str) -> None:
        """Kill the processes of the job that run a program."""
        for pid in self.pids(program):
            os.kill(pid, signal.SIGKILL)

    def results(self) -> Results:
        """Return what each rank has written."""
        return results(self.folder, self.ranks)

    def equals(self, expected: Results) -> bool:
        """Return whether weights and loss of every rank are as expected."""
        return are_equal(self.results(), expected)

    def resumed(self) -> bool:
        """Return whether the last start was from a checkpoint."""
        return all(rank["first_epoch"] != 0 for rank in self.results())


def run_jobs(folder: Path, epochs: int, expected: Results) -> Rows:
    """Return what was done, the seconds, and whether it was as expected.

    Args:
        folder: An empty folder.
        epochs: Length of the training.
        expected: Results of two ranks without an engine.
    """
    arguments = ("--epochs", str(epochs))
    rows: Rows = []

    job = SlurmJob.submit(folder / "requeue", *arguments)
    job.wait_for_checkpoint()
    query("scontrol", "requeue", job.number)
    seconds = job.wait_for(lambda: not job.pids())
    again = job.wait_for(job.has_ended)
    is_equal = job.equals(expected) and job.resumed() and job.field("Restarts") == "1"
    rows.append(("2 ranks: scontrol requeue", f"{seconds} + {again}", is_equal))

    job = SlurmJob.submit(folder / "low", *arguments)
    job.wait_for_checkpoint()
    urgent = SlurmJob.submit(folder / "high", *arguments, partition="high")
    seconds = job.wait_for(lambda: bool(urgent.pids()))
    again = job.wait_for(job.has_ended)
    is_equal = all(done.equals(expected) for done in (job, urgent)) and job.resumed() and not urgent.resumed()
    rows.append(("2 ranks: preempted by a job of 2 ranks", f"{seconds} + {again}", is_equal))

    rows += [
        _end_and_submit_again(folder / "srun", "kill srun", lambda job: job.kill("srun"), epochs, expected),
        _end_and_submit_again(
            folder / "scancel", "scancel", lambda job: query("scancel", job.number), epochs, expected
        ),
    ]
    return rows + _run_two(folder)


def _end_and_submit_again(
    folder: Path, what: str, end: Callable[[SlurmJob], object], epochs: int, expected: Results
) -> tuple[str, str, bool]:
    job = SlurmJob.submit(folder, "--epochs", str(epochs))
    job.wait_for_checkpoint()
    end(job)
    seconds = job.wait_for(lambda: not job.pids())
    state = job.wait()
    job = SlurmJob.submit(folder, "--epochs", str(epochs))
    again = job.wait_for(job.has_ended)
    is_equal = state != "COMPLETED" and job.equals(expected) and job.resumed()
    return f"2 ranks: {what}, submit again", f"{seconds} + {again}", is_equal


def _run_two(folder: Path) -> Rows:
    """Run two jobs at once, with shared and with exclusive machines."""
    rows: Rows = []
    for options in (("--share",), ()):
        name = "share" if options else "exclusive"
        end = folder / f"end-{name}"
        first, second = (
            SlurmJob.submit(folder / f"{name}-{number}", "--until", str(end), options=options) for number in (1, 2)
        )
        first.wait_for_checkpoint()
        if options:
            second.wait_for_checkpoint()
        waited = second.field("JobState") == "PENDING"
        end.touch()
        is_done = [job.wait() for job in (first, second)] == ["COMPLETED"] * 2
        modules = [{str(rank["modules"]) for rank in job.results()} for job in (first, second)]
        if options:
            (one,), (other,) = modules
            text = f"2 jobs of 2 ranks at once, --share: modules {one} and {other}"
            rows.append((text, "", is_done and set(one.split(",")).isdisjoint(other.split(","))))
        else:
            rows.append(("2 jobs of 2 ranks, exclusive: the second waits", "", is_done and waited))
    return rows
