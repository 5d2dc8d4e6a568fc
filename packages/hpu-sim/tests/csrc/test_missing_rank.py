"""The end of an asynchronous device: a rank that has died holds the others where they wait for the device."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    # Public in torch.distributed, but not exported for type checkers.
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore

_TIME_LIMIT: Final = 300.0

# DistributedDataParallel reads a copy in its second iteration, so the other rank dies after the third.
_PROGRAM: Final = """
import os
import sys
import warnings

import torch
import torch.distributed as dist
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.distributed.hccl

rank, port, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = dist.TCPStore("localhost", port, 2, is_master=False)
dist.init_process_group("hccl", store=store, rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to("hpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    model(torch.ones(3, 4, device="hpu")).sum().backward()
    optimizer.step()
    htcore.mark_step()

for _ in range(3):
    step()
torch.hpu.synchronize()
dist.barrier()
if rank == 1:
    os._exit(0)
step()
event = torch.hpu.Event()
event.record()
print("stepped", event.query(), flush=True)
step()
if end == "read":
    print(model.module.weight.sum().item(), flush=True)
elif end == "exit":
    sys.exit()
os._exit(3)
"""


@pytest.mark.parametrize(
    ("end", "lazy", "returncode"),
    [
        ("read", "0", -signal.SIGKILL),
        pytest.param("exit", "1", -signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("_exit", "1", 3, marks=pytest.mark.slow),
    ],
)
def test_a_missing_rank_holds_the_host_where_it_waits_until_synapse_ends_it(
    end: str,
    lazy: str,
    returncode: int,
    tmp_path_factory: pytest.TempPathFactory,
    start_python: Callable[..., subprocess.Popen[str]],
) -> None:
    """Not in steps, and the event says that the device has not come so far. `os._exit` does not wait."""
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    machine = {
        "HPU_SIM_DEVICES": "2",
        "HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")),
        "HPU_SIM_ASYNC": "1",
        "PT_HPU_LAZY_MODE": lazy,
        "SCAL_TIMEOUT_NO_PROGRESS": "8000000",
        "WORLD_SIZE": "2",
    }
    ranks = [
        start_python("-c", _PROGRAM, str(rank), str(server.port), end, **machine, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(2)
    ]
    try:
        (output, errors), _ = [rank.communicate(timeout=_TIME_LIMIT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()

    assert output.splitlines()[-1] == "stepped False", errors
    assert [rank.returncode for rank in ranks] == [returncode, 0], errors
    assert ("Synapse ends this process with SIGKILL" in errors) == (returncode == -signal.SIGKILL)
