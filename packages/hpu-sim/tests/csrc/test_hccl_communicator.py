"""csrc/hccl_communicator.cpp and hccl.cpp: ranks that connect through a store, and compare their collectives."""

from __future__ import annotations

import re
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
    dist.init_process_group("hccl", store=dist.PrefixStore(prefix, store), rank=int(rank), world_size=2)
    x = torch.ones(1, device="hpu")
    dist.all_reduce(x)
    print(x.item())
    dist.destroy_process_group()
"""

_START: Final = """
import sys
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl

rank, port, *arguments = sys.argv[1:]
rank = int(rank)
store = dist.TCPStore("localhost", int(port), 2, is_master=False)
dist.init_process_group("hccl", store=store, rank=rank, world_size=2)
"""

_ENDS: Final = {
    # Ranks differ in what else they allocate, and so in the addresses of their groups.
    "several groups that the program leaves": """
kept = []
for i in range(12):
    kept += [bytearray(300 + 200 * ((i + rank + j) % 4)) for j in range(1000 * (1 + rank) + 500 * i)]
    del kept[:: 2 + rank]
    kept.append(dist.new_group([0, 1]))
    x = torch.ones(1, device="hpu")
    dist.all_reduce(x, group=kept[-1])
    assert x.item() == 2
""",
    "a wait at the store beside the first collective": """
x = torch.ones(1000, 1000, device="hpu")
x = x @ x
y = torch.ones(1, device="hpu")
dist.all_reduce(y)
if rank == 0:
    store.wait(["reduced"])
else:
    assert y.item() == 2
    store.set("reduced", "")
dist.destroy_process_group()
""",
    "a destroyed group that others keep on one rank": """
kept = dist.group.WORLD if rank == 0 else None
dist.all_reduce(torch.ones(1, device="hpu"))
dist.destroy_process_group()
""",
}

_DIFFERENT: Final = """
x = torch.ones(3 if arguments[0] == "sizes" and rank else 2, device="hpu")
try:
    dist.broadcast(x, 0) if arguments[0] == "kinds" and rank else dist.all_reduce(x, async_op=True).wait()
    x.tolist()
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def run_two_ranks(
    tmp_path_factory: pytest.TempPathFactory,
    start_python: Callable[..., subprocess.Popen[str]],
    without_gloo: Callable[[str], str],
) -> RunRanks:
    """Returns a function that runs two ranks of a program with arguments."""
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    machine = {"HPU_SIM_DEVICES": "2", "HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")), "WORLD_SIZE": "2"}

    def run(program: str, *arguments: str, **variables: str) -> list[subprocess.CompletedProcess[str]]:
        processes = [
            start_python(
                "-c",
                program,
                str(rank),
                str(server.port),
                *arguments,
                **machine,
                **variables,
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


def test_each_prefix_serves_one_process_group(run_two_ranks: RunRanks) -> None:
    """Groups below different prefixes work; ranks that are restarted below a used prefix fail."""
    for done in run_two_ranks(_GROUPS, "first", "second"):
        assert done.returncode == 0, done
        assert done.stdout == "2.0\n2.0\n"

    for rank, done in enumerate(run_two_ranks(_GROUPS, "second")):
        assert done.returncode == 1, done
        assert "in the store is stale" in done.stderr
        assert f"rank {rank}" in done.stderr


@pytest.mark.parametrize("end", _ENDS)
def test_an_asynchronous_program_ends(end: str, run_two_ranks: RunRanks) -> None:
    for done in run_two_ranks(_START + _ENDS[end], HPU_SIM_ASYNC="1", PT_HPU_LAZY_MODE="0"):
        assert done.returncode == 0, done


@pytest.mark.parametrize("asynchronous", ["0", "1"])
@pytest.mark.parametrize(
    ("difference", "calls"),
    [
        ("sizes", (r"allreduce of Float\[2\], sum", r"allreduce of Float\[3\], sum")),
        ("kinds", (r"allreduce of Float\[2\], sum", r"broadcast of Float\[2\], root 0")),
    ],
)
def test_ranks_in_different_collectives_get_an_error_that_names_them(
    difference: str, calls: tuple[str, str], asynchronous: str, run_two_ranks: RunRanks
) -> None:
    """With their lines, on all ranks, before any of them runs. On a card, they hang or go on with wrong numbers."""
    for done in run_two_ranks(_START + _DIFFERENT, difference, HPU_SIM_ASYNC=asynchronous, PT_HPU_LAZY_MODE="0"):
        assert done.returncode == 0, done
        named = "; ".join(rf"rank {rank} in {call} at <string>:\d+" for rank, call in enumerate(calls))
        assert re.search(rf"different collectives.* {named}", done.stdout), done
