"""Identity of the simulated machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.device import machine_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("forks")

_COMMAND: Final = Path(sys.executable).with_name("hpu-sim")
# Prints the number of its device and holds it until its standard input is closed.
_HOLDER: Final = """
import sys
import torch
torch.ones(1, device="hpu")
print("has a card", flush=True)
sys.stdin.read()
"""
_SLURM: Final = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
_OPEN_MPI_4: Final = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:5"}
_OPEN_MPI_5: Final = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-node-1@1"}


def test_a_child_inherits_its_machine() -> None:
    parent = machine_id.inherited_or_new({})

    assert machine_id.inherited_or_new(parent) == parent


def test_two_programs_have_different_machines() -> None:
    assert machine_id.inherited_or_new({}) != machine_id.inherited_or_new({})


def test_a_session_does_not_inherit_a_generated_machine() -> None:
    parent = machine_id.named_or_new({})

    assert machine_id.named_or_new(parent) != parent


def test_a_session_is_on_the_machine_that_the_user_named() -> None:
    named = {"HPU_SIM_MACHINE": "lab"}

    assert machine_id.named_or_new(named) == named


def test_a_chosen_folder_needs_no_generated_machine() -> None:
    assert machine_id.named_or_new({"HPU_SIM_RUNTIME_DIR": "cards"}) == {}


@pytest.mark.parametrize("job", [_SLURM, _OPEN_MPI_4, _OPEN_MPI_5], ids=["slurm", "open-mpi-4", "open-mpi-5"])
def test_ranks_of_a_job_share_a_machine(job: dict[str, str]) -> None:
    """A job manager starts each rank as a program of its own."""
    assert machine_id.named_or_new({**job, "RANK": "0"}) == machine_id.named_or_new({**job, "RANK": "1"})


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_STEP_ID"])
def test_another_step_or_job_has_another_machine(name: str) -> None:
    assert machine_id.named_or_new(_SLURM) != machine_id.named_or_new({**_SLURM, name: "8"})


def test_programs_of_an_interactive_job_have_different_machines() -> None:
    """A job of one rank may be a shell that runs several programs."""
    job = {**_SLURM, "SLURM_STEP_NUM_TASKS": "1"}

    assert machine_id.named_or_new(job) != machine_id.named_or_new(job)


@pytest.mark.parametrize("other", [{"HPU_SIM_MACHINE": "a"}, {"HPU_SIM_RUNTIME_DIR": "other"}])
def test_machines_of_other_names_or_folders_differ(other: dict[str, str]) -> None:
    assert machine_id.current({"HPU_SIM_RUNTIME_DIR": "cards"}) != machine_id.current(other)


def test_a_chosen_folder_is_one_machine_however_it_is_spelled() -> None:
    """Processes with different parents share the folder that the user chose."""
    relative = {"HPU_SIM_RUNTIME_DIR": "cards", "HPU_SIM_MACHINE": machine_id.new()}

    assert machine_id.current(relative) == machine_id.current({"HPU_SIM_RUNTIME_DIR": str(Path("cards").resolve())})


@pytest.mark.parametrize("name", ["", "auto:1"])
def test_a_name_is_not_empty_and_has_no_colon(name: str) -> None:
    with pytest.raises(ValueError, match=f"`machine` must be a name without a colon, got {name!r}"):
        machine_id.parse_name(name)


@pytest.fixture
def start(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command, and ends it after the test."""
    (tmp_path / "holder.py").write_text(_HOLDER, encoding="utf-8")
    processes: list[subprocess.Popen[str]] = []

    def popen(*command: str, **variables: str | None) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        environment = fresh_environment({"HPU_SIM_RUNTIME_DIR": None, "TMPDIR": str(tmp_path / "tmp"), **variables})
        (tmp_path / "tmp").mkdir(exist_ok=True)
        processes.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        )
        return processes[-1]

    yield popen
    for process in processes:
        process.communicate()


def _outcomes(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Return the outcome of processes, each of which holds its card until all have one or failed."""
    first_lines = [str(process.stdout and process.stdout.readline()) for process in processes]
    errors = [process.communicate()[1] for process in processes]
    return [
        line.rstrip() or error.splitlines()[-1].partition(" Device")[0]
        for line, error in zip(first_lines, errors, strict=True)
    ]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        pytest.param([str(_COMMAND), "run", "--quiet"], {}, marks=pytest.mark.slow, id="hpu-sim run"),
        pytest.param([sys.executable], {"HPU_SIM_DEVICES": "1"}, id="HPU_SIM_DEVICES"),
    ],
)
@pytest.mark.needs_torch("2.5", "device backends")
def test_programs_side_by_side_have_a_card_each(
    arguments: list[str], variables: dict[str, str], tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """Every program has a machine of its own, and leaves nothing behind."""
    processes = [start(*arguments, "holder.py", **variables) for _ in range(3)]

    assert _outcomes(processes) == ["has a card"] * 3
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        pytest.param(["--machine", "lab"], {}, id="option"),
        pytest.param([], {"HPU_SIM_MACHINE": "lab"}, marks=pytest.mark.slow, id="name"),
        pytest.param([], {"HPU_SIM_RUNTIME_DIR": "cards"}, marks=pytest.mark.slow, id="folder"),
        pytest.param([], _SLURM, marks=pytest.mark.slow, id="job"),
    ],
)
def test_programs_share_a_machine_on_purpose(
    arguments: list[str], variables: dict[str, str], start: Callable[..., subprocess.Popen[str]]
) -> None:
    """A machine of two cards has none for a third program."""
    command = [str(_COMMAND), "run", "--quiet", "--devices", "2", *arguments, "holder.py"]

    processes = [start(*command, **variables) for _ in range(3)]

    assert sorted(_outcomes(processes)) == [
        "RuntimeError: synStatus=20 [Device already acquired]",
        "has a card",
        "has a card",
    ]
