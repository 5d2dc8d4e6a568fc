"""Tests of the variables of launchers."""

import pytest

from hpu_core.launcher_env import find_launcher_env, global_rank, num_nodes, parse_int, world_size

_TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "node-0", "MASTER_PORT": "1234"}
_OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
_SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_NODELIST": "node-[07-08]",
    "SLURM_JOB_ID": "420123",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (_TORCHRUN, ("torchrun", 5, 1, 8, "node-0", "1234")),
        (_OPEN_MPI, ("Open MPI", 3, 3, 4, "127.0.0.1", "29500")),
        (
            _OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "node-0"},
            ("Open MPI", 3, 3, 4, "node-0", "29500"),
        ),
        (_SLURM, ("SLURM", 3, 1, 4, "node-07", "15123")),
    ],
)
def test_rank_of_a_launcher(environ: dict[str, str], expected: tuple[str, int, int, int, str, str]) -> None:
    launcher, rank, local_rank, size, address, port = expected
    env = find_launcher_env(environ)

    assert env is not None
    assert (env.launcher, env.rank, env.local_rank, env.world_size) == (launcher, rank, local_rank, size)
    assert (env.address, env.port) == (address, port)


def test_process_without_a_launcher() -> None:
    assert find_launcher_env({"MASTER_ADDR": "node-0", "RANK": "0"}) is None


def test_open_mpi_on_several_machines_needs_an_address() -> None:
    with pytest.raises(ValueError, match="MASTER_ADDR must be"):
        find_launcher_env(_OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("node-1", "node-1"),
        ("a,b", "a"),
        ("node-[01-04,7],x", "node-01"),
        ("n[3]-ib,x", "n3-ib"),
        ("r[1-2]n[01-04],x", "r1n01"),
        ("", "127.0.0.1"),
    ],
)
def test_address_is_the_first_host_of_slurms_list(nodes: str, expected: str) -> None:
    env = find_launcher_env({**_SLURM, "SLURM_NODELIST": nodes})

    assert env is not None
    assert env.address == expected


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_interactive_shell_of_slurm_is_no_rank(name: str) -> None:
    """As Lightning has it: `srun --pty bash` starts a shell, not a job."""
    environ = {**_SLURM, "SLURM_JOB_NAME": name, "SLURM_NNODES": "2"}

    assert find_launcher_env(environ) is None
    assert (global_rank(environ), world_size(environ), num_nodes(environ)) == (None, None, None)


def test_torchrun_within_an_interactive_shell_of_slurm() -> None:
    env = find_launcher_env({**_SLURM, **_TORCHRUN, "SLURM_JOB_NAME": "bash"})

    assert env is not None
    assert (env.launcher, env.rank) == ("torchrun", 5)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, None)),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_NNODES": "2"}, (9, 16, 2)),
        ({"SLURM_JOB_NUM_NODES": "4"}, (None, None, 4)),
        ({"GROUP_WORLD_SIZE": "1", "SLURM_NNODES": "4"}, (None, None, 1)),
        ({"RANK": "x"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
    ids=["pod of Kubernetes", "SLURM", "allocation", "torchrun within SLURM", "malformed", "none"],
)
def test_values_of_incomplete_variables(
    environ: dict[str, str], expected: tuple[int | None, int | None, int | None]
) -> None:
    assert (global_rank(environ), world_size(environ), num_nodes(environ)) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("12", 12), ("-1", None), ("", None), ("\u0663", None), ("9" * 5000, None)]
)
def test_parse_int(text: str, expected: int | None) -> None:
    assert parse_int(text) == expected
