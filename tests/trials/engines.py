"""Train on simulated cards with the real engines that are installed, and print a table of what happened.

    python tests/trials/engines.py [ENGINE...]

`nox -s engines` calls it. Each row starts its job by `hpu-launch --run` and compares every rank with a run without an
engine: weights bit for bit, and the loss. In most rows a rank or the engine's command is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_testing import free_port, machine_env
from hpu_testing.network import can_create_networks
from jobs import BATCHES, BIN, VARIABLES, Results, are_equal, find_pids, results, script
from lost_machine import lose_a_machine
from slurm_cluster import can_start, cluster
from slurm_jobs import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMEOUT = 900
# Epochs that no rank finishes before it notices that the command was killed.
_LONG = 100


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        engine: Engine of `hpu-launch`, None for a run without one.
        ranks: Number of ranks, each with a card.
        what: What is done, in a few words.
        killed: Rank that kills itself, or "launcher" for the engine's command after the first checkpoint; None if
            nothing is killed.
        options: Options of `hpu-launch`.
        restarts: Whether the engine restarts the ranks; otherwise the command is run again.
        epochs: Length of the training.
    """

    engine: str | None
    ranks: int
    what: str
    killed: int | str | None = None
    options: tuple[str, ...] = ()
    restarts: bool = False
    epochs: int = 4


# Ranks are killed in jobs of two. With four, the order of sums depends on the place in a bucket, and DDP rebuilds its
# buckets after the first step of a process, so a resumed run rounds differently; docs/start/engines.md has the figures.
CASES = [
    Case("torchrun", 2, "train"),
    Case("torchrun", 2, "kill rank 1, --max-restarts 1", 1, ("--max-restarts", "1"), restarts=True),
    Case("torchrun", 2, "kill torchrun's agent, start again", "launcher", epochs=_LONG),
    Case("mpirun", 4, "train, no mpi4py"),
    Case("mpirun", 2, "kill rank 1, start again", 1),
    Case("mpirun", 2, "kill mpirun, start again", "launcher", epochs=_LONG),
    Case("slurm", 4, "train with srun"),
    Case("slurm", 2, "kill rank 1, submit again", 1),
    Case("ray", 2, "kill rank 1, max_failures=1", 1, ("--max-restarts", "1"), restarts=True),
]
# Program that an engine needs, and what prints its version.
PROGRAMS = {
    "torchrun": ("torchrun", (sys.executable, "-c", "import torch; print('torch', torch.__version__)")),
    "mpirun": ("mpirun", ("mpirun", "--version")),
    "slurm": ("sbatch", ("sbatch", "--version")),
    "ray": ("ray", (sys.executable, "-c", "import ray; print('Ray', ray.__version__)")),
}


def run(case: Case, folder: Path, *, kills_launcher: bool = False) -> tuple[int, float]:
    """Run the training of a case once, and return its exit code and seconds.

    With `kills_launcher`, the seconds count from its end to that of the last rank.

    Args:
        case: The case.
        folder: Folder of its checkpoints and results.
        kills_launcher: Whether to kill the engine's command after the first checkpoint.
    """
    options = ["--epochs", str(case.epochs)]
    if isinstance(case.killed, int):
        # Once, in the second batch of the third epoch.
        options += ["--fault", "killed", "--rank", str(case.killed), "--call", str(2 * BATCHES + 1)]
        options += ["--once", str(folder / "killed")]
    training = script(folder, case.ranks, *options)
    if case.engine is None:
        command = [sys.executable, *training]
    else:
        launch = [str(BIN / "hpu-launch"), "--engine", case.engine, "--devices", str(case.ranks)]
        # SLURM and Ray choose their own.
        port = ["--port", str(free_port())] if case.engine in {"torchrun", "mpirun"} else []
        command = [*launch, *port, *case.options, "--run", *training]
    # Ray's own limit is too short for a busy machine.
    variables = VARIABLES | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_agent_register_timeout_ms": "300000"}
    environment = machine_env(case.ranks, folder, **variables)
    # A machine that runs this may have fewer cores than ranks; Open MPI 4 and 5 spell it differently.
    environment |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    # sbatch returns at once otherwise.
    environment |= {"SBATCH_WAIT": "1", "SBATCH_OUTPUT": str(folder / "slurm.log"), "SBATCH_EXPORT": "ALL"}
    start = time.monotonic()
    with (folder / "output.log").open("a") as log:
        # Its own session, so that nothing is left of an engine that is ended.
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            if kills_launcher:
                _wait((folder / "checkpoints" / "last.ckpt").exists)
                start = time.monotonic()
                process.kill()
            code = process.wait(TIMEOUT)
            _wait(lambda: not find_pids(folder))
        finally:
            for pid in find_pids(folder):
                os.kill(pid, signal.SIGKILL)
    return code, time.monotonic() - start


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.05)


def describe(case: Case, folder: Path, expected: Results) -> tuple[str, str, bool]:
    """Run a case, and return seconds, result and whether it is as expected.

    Args:
        case: The case.
        folder: An empty folder.
        expected: Results of the ranks without an engine.
    """
    code, seconds = run(case, folder, kills_launcher=case.killed == "launcher")
    times = f"{seconds:.0f}"
    if case.killed is not None and not case.restarts:
        if code == 0:
            return times, "the engine did not report the killed rank", False
        code, seconds = run(case, folder)
        times += f" + {seconds:.0f}"
    ranks = results(folder, case.ranks)
    if code != 0 or len(ranks) != case.ranks:
        print((folder / "output.log").read_text(), file=sys.stderr)
        return times, f"exit code {code}, {len(ranks)} of {case.ranks} ranks finished", False
    first = {rank["first_epoch"] for rank in ranks}
    same = are_equal(ranks, expected)
    resumed = f"resumed at epoch {min(map(str, first))}, " if case.killed is not None else ""
    was_resumed = case.killed is None or 0 not in first
    return times, f"{resumed}weights and loss {'equal' if same else 'DIFFER'}", same and was_resumed


def main() -> int:
    """Run the cases, and print the table; return 1 if one is not as expected."""
    wanted = sys.argv[1:] or list(PROGRAMS)
    table = [("engine", "what was done", "seconds", "result")]
    failed = False
    with contextlib.ExitStack() as stack:
        if "slurm" in wanted and can_start():
            stack.enter_context(cluster(_temporary(stack)))
        for row, ok in _rows(wanted):
            table.append(row)
            failed |= not ok
            print(" | ".join(row), flush=True)
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    print("\nSimulated cards, one machine:")
    for row in table:
        print("| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |")
    return int(failed)


def _rows(wanted: list[str]) -> Iterator[tuple[tuple[str, str, str, str], bool]]:
    """Yield the rows of the table, and whether each is as expected."""
    expected: dict[tuple[int, int], Results] = {}
    for case in CASES:
        engine = str(case.engine)
        if engine not in wanted:
            continue
        if reason := _skip_reason(engine):
            yield (engine, case.what, "-", f"not run: {reason}"), True
            continue
        with contextlib.ExitStack() as stack:
            key = case.ranks, case.epochs
            if key not in expected:
                folder = _temporary(stack)
                run(replace(case, engine=None, killed=None), folder)
                expected[key] = results(folder, case.ranks)
            seconds, result, ok = describe(case, _temporary(stack), expected[key])
        yield (_version(engine), f"{case.ranks} ranks: {case.what}", seconds, result), ok
    with contextlib.ExitStack() as stack:
        steps: list[tuple[str, str, str, bool]] = []
        if "torchrun" in wanted and can_create_networks():
            steps += [("torchrun", *row) for row in lose_a_machine(_temporary(stack))]
        if "slurm" in wanted and not _skip_reason("slurm"):
            folder = _temporary(stack)
            run(Case(None, 2, "train", epochs=_LONG), folder)
            rows = run_jobs(_temporary(stack), _LONG, results(folder, 2))
            steps += [(_version("slurm"), *row) for row in rows]
        for engine, what, seconds, ok in steps:
            yield (engine, what, seconds, "as expected" if ok else "NOT as expected"), ok


def _skip_reason(engine: str) -> str | None:
    if engine == "slurm":
        return None if can_start() else "needs root and the packages slurm-wlm and munge"
    program = PROGRAMS[engine][0]
    is_installed = shutil.which(program, path=VARIABLES["PATH"]) is not None
    return None if is_installed else f"`{program}` is not installed"


def _version(engine: str) -> str:
    text = subprocess.run(PROGRAMS[engine][1], capture_output=True, text=True, check=False).stdout
    return text.splitlines()[0] if text else engine


def _temporary(stack: contextlib.ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))


if __name__ == "__main__":
    sys.exit(main())
