"""Ranks that torchrun or the user launches; `test_requeue` has SLURM's."""

import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from hpu_testing import CompletedProgram, Program, free_port

from .conftest import Run
from .rank_reports import check_trained, reports_of


def test_torchrun(run: Run) -> None:
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    )

    check_trained(reports_of(run("train.py", interpreter=torchrun)), 2)


def _run_concurrently(
    make_program: Callable[..., Program], environments: list[dict[str, str]], *arguments: str
) -> list[CompletedProgram]:
    """Run a program once in each environment, concurrently."""
    with ExitStack() as running:
        programs = [
            running.enter_context(make_program("train.py", *arguments, **variables)) for variables in environments
        ]
        return [program.wait(150) for program in programs]


@pytest.mark.slow
def test_user_launches_each_rank(program: Callable[..., Program]) -> None:
    """A process with LOCAL_RANK and MASTER_PORT is a rank and launches no other."""
    variables = {"MASTER_PORT": str(free_port())}
    done = _run_concurrently(program, [{**variables, "LOCAL_RANK": str(rank)} for rank in range(2)])

    check_trained([report for each in done for report in reports_of(each)], 2)


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_multiple_machines(devices: int, program: Callable[..., Program]) -> None:
    """The environment variables in the documentation make one job of two machines."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    # Both machines are simulated on this one, and their devices have the same names.
    nodes = [{**variables, "NODE_RANK": str(node), "HPU_SIM_RUNTIME_DIR": f"cards-{node}"} for node in range(2)]
    done = _run_concurrently(program, nodes, "--num-nodes", "2", "--devices", str(devices))

    reports = [report for each in done for report in reports_of(each)]
    check_trained(sorted(reports, key=lambda report: int(report["rank"])), 2 * devices)
    assert [report["module_id"] for report in reports] == ["0", "1"][:devices] * 2
