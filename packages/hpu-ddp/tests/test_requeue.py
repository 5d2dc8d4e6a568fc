"""Requeueing by SLURM: a signal in the middle of a step, on one rank or all, saves one checkpoint of all ranks."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hpu_testing import Network, Program, free_port, machine_env
from hpu_testing.network import can_create_networks

from .conftest import PROGRAMS

# Checkpoints that Lightning saves for a requeue.
_SAVED = "hpc_ckpt_*.ckpt"

Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Return a function that trains as SLURM's tasks, and returns what the ranks report, in order.

    `train(*options, machines=...)`, where a machine is a command in front of the program, and has two ranks.
    """
    folder = tmp_path / "slurm"
    folder.mkdir()
    scontrol = folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/scontrol.log"\n')
    scontrol.chmod(0o755)

    def train(*options: str, machines: Sequence[Sequence[str]] = ((),), host: str = "127.0.0.1") -> Any:
        ranks = 2 * len(machines)
        job = {
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NAME": "train",
            "SLURM_NTASKS": str(ranks),
            "SLURM_NODELIST": host,
            "SLURM_NTASKS_PER_NODE": "2",
        }
        job |= {"MASTER_PORT": str(free_port()), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        with ExitStack() as stack:
            programs = []
            for rank in range(ranks):
                machine, local = divmod(rank, 2)
                task = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(machine)}
                command = [*machines[machine], sys.executable, str(PROGRAMS / "train.py"), *options]
                command += ["--timeout", "60", "--num-nodes", str(len(machines))]
                variables = machine_env(2, tmp_path / f"cards-{machine}", **job, **task)
                program = Program(command, variables, tmp_path, preloaded=not machines[machine])
                programs.append(stack.enter_context(program))
            done = [program.wait(150) for program in programs]
        output = "\n".join(each.output for each in done)
        assert [each.code for each in done] == [0] * ranks, output
        return [json.loads(line) for line in output.splitlines() if line.startswith('{"rank"')]

    return train


def _check(train: Train, folder: Path, rank: str, **machines: Any) -> None:
    """Train with the signal, and resume."""
    signalled = train("--fail", "signalled", "--rank", rank, **machines)
    assert (folder / "scontrol.log").read_text() == "requeue 4711\n"
    assert [file.name for file in folder.glob(_SAVED)] == ["hpc_ckpt_1.ckpt"]
    resumed = train(**machines)

    # It trains on until SLURM ends it.
    assert {report["steps"] for report in signalled} == {12}
    # The signal came in the fourth batch, and the ranks ask before batches 4 and 8.
    assert {(report["first_step"], report["steps"]) for report in resumed} in ({(4, 12)}, {(8, 12)})
    assert len({report["weights"] for report in signalled}) == len({report["weights"] for report in resumed}) == 1


# Lightning warns when it resumes in the middle of an epoch.
@pytest.mark.parametrize("rank", ["1", pytest.param("-1", marks=pytest.mark.slow)], ids=["one rank", "all ranks"])
def test_a_signal_saves_and_requeues_once(rank: str, train: Train, tmp_path: Path) -> None:
    _check(train, tmp_path, rank)


@pytest.mark.slow
@pytest.mark.skipif(not can_create_networks(), reason="Requires: network namespaces (root, iproute2)")
def test_a_signal_saves_and_requeues_once_on_two_machines(train: Train, tmp_path: Path) -> None:
    with Network(2) as network:
        machines = [network.command(machine, []) for machine in range(2)]
        _check(train, tmp_path, "-1", machines=machines, host=network.address(0))
