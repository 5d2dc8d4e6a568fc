"""csrc/hccl_communicator.cpp: the communicator id travels through the store of the process group."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    # Public in torch.distributed, but not exported for type checkers.
    from torch._C._distributed_c10d import HashStore, TCPStore

    RunRanks: TypeAlias = Callable[..., list[subprocess.CompletedProcess[str]]]
else:
    from torch.distributed import HashStore, TCPStore

_TIME_LIMIT: Final = 120.0

# The test hosts the server of the store, as torchrun's agent does: the store outlives its process groups.
_GROUPS: Final = """
import sys
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl

rank, port, *prefixes = sys.argv[1:]
store = dist.TCPStore("localhost", int(port), 2, is_master=False)
for prefix in prefixes:
    keys = dist.PrefixStore(prefix, store) if prefix else store
    dist.init_process_group("hccl", store=keys, rank=int(rank), world_size=2)
    x = torch.ones(1, device="hpu")
    dist.all_reduce(x)
    print(x.item())
    dist.destroy_process_group()
"""


@pytest.fixture
def run_two_ranks(
    tmp_path_factory: pytest.TempPathFactory,
    start_python: Callable[..., subprocess.Popen[str]],
    without_gloo: Callable[[str], str],
) -> RunRanks:
    """Returns a function that runs two ranks, which make one process group after another on one store, by prefixes."""
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    machine = {"HPU_SIM_DEVICES": "2", "HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")), "WORLD_SIZE": "2"}

    def run(*prefixes: str) -> list[subprocess.CompletedProcess[str]]:
        processes = [
            start_python(
                "-c",
                _GROUPS,
                str(rank),
                str(server.port),
                *prefixes,
                **machine,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
            )
            for rank in range(2)
        ]
        try:
            outputs = [process.communicate(timeout=_TIME_LIMIT) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            subprocess.CompletedProcess(process.args, process.returncode, without_gloo(stdout), stderr)
            for process, (stdout, stderr) in zip(processes, outputs, strict=True)
        ]

    return run


def test_ranks_that_share_an_id_connect_over_keys_below_it() -> None:
    """Rank 0 sets the id under key "0", the other ranks get it, and all of them use it as the prefix of their keys."""
    store = HashStore()

    stores = [native().join_hccl_communicator(store, rank, 2) for rank in range(2)]

    stores[0].set("key", "value")
    assert stores[1].get("key") == b"value"
    assert store.get(f"{store.get('0').decode()}/key") == b"value"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_joins_twice_reads_a_stale_id(rank: int) -> None:
    """The error names the id and the rank, and says how to avoid it."""
    store = HashStore()
    for each in range(2):
        native().join_hccl_communicator(store, each, 2)
    stale = store.get("0").decode()

    with pytest.raises(RuntimeError, match=rf"id {stale} in the store is stale .*rank {rank} .*PrefixStore"):
        native().join_hccl_communicator(store, rank, 2)

    assert store.get("0").decode() == stale


def test_a_rank_that_an_earlier_group_did_not_have_reads_a_stale_id() -> None:
    """The id says for how many ranks it was made."""
    store = HashStore()
    native().join_hccl_communicator(store, 0, 1)

    with pytest.raises(RuntimeError, match=r"is stale .*rank 1"):
        native().join_hccl_communicator(store, 1, 2)


@pytest.mark.usefixtures("pipelined")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_waits_for_the_others_until_the_limit(rank: int) -> None:
    """Rank 0 for their arrival, and another one for the id. By default, the limit is that of HCCL."""
    limit = r"hcclCommInitRank failed: not all ranks have come within 0\.05 s \(simulated\)"
    with pytest.raises(RuntimeError, match=limit):
        native().join_hccl_communicator(HashStore(), rank, 2, 0.05)


def test_every_communicator_has_an_id_of_its_own() -> None:
    """Ids of two process groups differ, so a stale one can be told from the current one."""
    stores = [HashStore(), HashStore()]

    for store in stores:
        native().join_hccl_communicator(store, 0, 1)

    assert stores[0].get("0") != stores[1].get("0")


def test_a_process_group_on_a_store_that_served_another_one_fails(run_two_ranks: RunRanks) -> None:
    """Every rank fails at once when a destroyed group is created again on the same raw store."""
    for rank, done in enumerate(run_two_ranks("", "")):
        assert done.returncode == 1, done
        assert done.stdout == "2.0\n"
        assert "in the store is stale" in done.stderr
        assert f"rank {rank}" in done.stderr


def test_each_prefix_serves_one_process_group(run_two_ranks: RunRanks) -> None:
    """Groups below different prefixes work; ranks that are restarted below a used prefix fail."""
    for done in run_two_ranks("first", "second"):
        assert done.returncode == 0, done
        assert done.stdout == "2.0\n2.0\n"

    for done in run_two_ranks("second"):
        assert done.returncode == 1, done
        assert "in the store is stale" in done.stderr
