"""Tests of the ranks of a job."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core.info._job import Job, exchange, find_job, first_host, format_ranks
from hpu_testing import free_port

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
        (_TORCHRUN, (5, 1, 8, "node-0", "1234")),
        (_OPEN_MPI, (3, 3, 4, "127.0.0.1", "29500")),
        (_OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "node-0"}, (3, 3, 4, "node-0", "29500")),
        (_SLURM, (3, 1, 4, "node-07", "15123")),
    ],
)
def test_job_of_a_launcher(environ: dict[str, str], expected: tuple[int, int, int, str, str]) -> None:
    rank, local_rank, world_size, address, port = expected
    job = Job(rank=rank, local_rank=local_rank, world_size=world_size, address=address, port=port)

    assert find_job(environ) == job


def test_no_job_without_a_launcher() -> None:
    assert find_job({"MASTER_ADDR": "node-0", "RANK": "0"}) is None


def test_open_mpi_on_several_machines_needs_an_address() -> None:
    with pytest.raises(ValueError, match="MASTER_ADDR must be"):
        find_job(_OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [("node-1", "node-1"), ("a,b", "a"), ("node-[01-04,7],x", "node-01"), ("n[3]-ib,x", "n3-ib"), ("", "")],
)
def test_first_host_of_slurms_list(nodes: str, expected: str) -> None:
    assert first_host(nodes) == expected


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.1.dev0"), reason="Requires: torch 2.1, whose store takes a listening socket"
)
def test_store_on_the_loopback_is_out_of_reach_for_other_machines() -> None:
    job = Job(rank=0, local_rank=0, world_size=2, address="127.0.0.1", port=str(free_port()))
    store = job.connect(timedelta(seconds=10))

    table = "".join(Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    listening = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
    assert f"0100007F:{int(job.port):04X}" in listening
    assert [each for each in listening if each.endswith(f":{int(job.port):04X}")] == [f"0100007F:{int(job.port):04X}"]
    del store


def test_rank_that_sends_nothing_has_no_value() -> None:
    job = Job(rank=0, local_rank=0, world_size=2, address="127.0.0.1", port=str(free_port()))
    store = job.connect(timedelta(seconds=1))

    assert exchange(store, job, {"a": 1}) == [{"a": 1}, None]


@pytest.mark.parametrize(("ranks", "expected"), [([3], "rank 3"), ([1, 3], "ranks 1, 3")])
def test_format_ranks(ranks: list[int], expected: str) -> None:
    assert format_ranks(ranks) == expected
