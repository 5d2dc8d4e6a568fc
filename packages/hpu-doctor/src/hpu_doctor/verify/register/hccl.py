"""Collectives of HCCL: operations, dtypes, coalescing, barriers, and what never times out. All cards take part."""

import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpu_core import bridge, hccl
from hpu_core.launcher_env import find_launcher_env
from hpu_doctor.verify.assumption import Subject, error_of
from hpu_doctor.verify.register._tools import BRIDGE

SUBJECT = Subject("Collectives", ranks=True, seconds=240)
assume = SUBJECT.assume

_BASE = BRIDGE + "distributed/hccl/process_group_hccl_base.cpp:"
_UTILS = BRIDGE + "backend/helpers/collective_utils.cpp:"


def start(**options: Any) -> tuple[int, int]:
    """Create the process group of the job unless it exists, and return rank and number of ranks."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    env = find_launcher_env()
    if env is None:
        raise RuntimeError("the process has no rank")
    hccl.initialize_hccl(env.world_size, env.rank, env.local_rank)
    bridge.open_device()
    dist.init_process_group("hccl", rank=env.rank, world_size=env.world_size, **options)
    return env.rank, env.world_size


def _reduce(values: Any, operation: str = "SUM", dtype: str = "float32") -> Any:
    """Return the reduction of a tensor over all ranks, as a list."""
    start()
    tensor = torch.tensor(values).to(getattr(torch, dtype)).to("hpu")
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation))
    return tensor.cpu().tolist()


def _sums() -> bool:
    rank, size = start()
    return bool(_reduce([1.0 + rank]) == [sum(range(1, size + 1))])


def _odd_sum() -> bool:
    """Return whether the sum of an odd number above 2**24 and zeros is exact in int64."""
    rank, _ = start()
    return bool(_reduce([2**24 + 1 if rank == 0 else 0], dtype="int64") == [2**24 + 1])


def _scattered() -> bool:
    rank, size = start()
    inputs = torch.full((size,), 2**24 + 1 if rank == 0 else 0, dtype=torch.int64).to("hpu")
    output = torch.zeros(1, dtype=torch.int64).to("hpu")
    dist.reduce_scatter_tensor(output, inputs)
    return output.cpu().item() == 2**24 + 1


def _object() -> object:
    rank, size = start()
    objects = [{"step": 7} if rank == size - 1 else None]
    dist.broadcast_object_list(objects, size - 1)
    return objects[0]


def _gathered() -> bool:
    rank, size = start()
    output = torch.zeros(size, device="hpu")
    dist.all_gather_into_tensor(output, torch.full((1,), float(rank)).to("hpu"))
    return bool(output.cpu().tolist() == list(map(float, range(size))))


def _neighbors() -> list[bool]:
    rank, size = start()
    own, received = torch.full((5,), float(rank)).to("hpu"), torch.zeros(5, device="hpu")
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own, (rank + 1) % size), dist.P2POp(dist.irecv, received, (rank - 1) % size)]
    ):
        work.wait()
    return [received.cpu()[0].item() == (rank - 1) % size, own.cpu()[0].item() == rank]


def _even() -> list[bool]:
    """Return whether a group of the even ranks reduces over them alone."""
    rank, size = start()
    even = list(range(0, size, 2))
    group = dist.new_group(even)
    tensor = torch.ones(1, device="hpu")
    if rank in even:
        dist.all_reduce(tensor, group=group)
    dist.barrier()
    return [tensor.cpu().item() == (len(even) if rank in even else 1), size > len(even)]


def _averaged() -> bool:
    rank, size = start()
    layer = torch.nn.Linear(1, 1, bias=False).to("hpu")
    wrapped = torch.nn.parallel.DistributedDataParallel(layer, gradient_as_bucket_view=True)
    wrapped(torch.full((1, 1), float(rank)).to("hpu")).sum().backward()
    gradient = layer.weight.grad.cpu().item() if layer.weight.grad is not None else None
    dist.barrier()
    return gradient is not None and abs(gradient - sum(range(size)) / size) < 1e-2  # noqa: PLR2004 - bfloat16.


SUBJECT.table(
    "collective-results",
    "Collectives sum float32; int64 is summed in float32, so that greater integers lose bits, and bool by MAX is true "
    "where any is; `reduce_scatter_tensor` sums int64 as such; objects, groups and neighbors work, and DDP without "
    "`device_ids` averages gradients.",
    {
        "SUM": (True, _sums),
        "MIN and MAX": (
            [[1.0], True],
            lambda: [_reduce([1.0 + start()[0]], "MIN"), _reduce([1.0 + start()[0]], "MAX") == [start()[1]]],
        ),
        "SUM of large int64": (False, _odd_sum),
        "MAX of bool": ([True], lambda: _reduce([start()[0] == start()[1] - 1], "MAX", "bool")),
        "reduce_scatter of int64": (True, _scattered),
        "broadcast of objects": ({"step": 7}, _object),
        "all_gather_into_tensor": (True, _gathered),
        "neighbors": ([True, True], _neighbors),
        "group of even ranks": ([True, True], _even),
        "DDP": (True, _averaged),
    },
    source=_UTILS + "39-64; process_group_hccl_base.cpp:86-107,417-492,1417-1492,1656-1782; process_group_eager_hccl."
    "cpp:109-131; core/torch_overwrites.py; HCL hcl/src/hcl_utils.h:378-393; Intel's page of DDP",
    means={
        "hpu-core": "metrics, counters, paths of checkpoints or predictions would arrive wrong, or not at all.",
        "hpu-ddp": "gradients would not be averaged, or overflow in the sum of many ranks.",
        "hpu-fsdp": "gradients would not be summed, parameters not be gathered, or hybrid sharding fail.",
        "hpu-doctor": "the check of links would not work.",
        "hpu-sim": "programs with pipelines or mixtures of experts would fail.",
    },
)


@assume(
    source=_BASE + "1785-1826, a counter of the store",
    expected=True,
    means={"hpu-core": "its barrier would not have to wait for the card first."},
)
def barrier_waits_for_all_ranks() -> object:
    """`barrier` returns only when all ranks have called it."""
    rank, _ = start()
    dist.barrier()
    entered = time.monotonic()
    if rank != 0:
        time.sleep(0.5)
    dist.barrier()
    return rank != 0 or time.monotonic() - entered > 0.4  # noqa: PLR2004 - most of the sleep.


@assume(
    source=_BASE + "1785-1826: no timeout",
    expected="waits",
    means={
        "hpu-core": "the failure detection would not have to end ranks that wait for a dead one.",
        "hpu-doctor": "`check-collectives` would need no thread.",
    },
)
def barrier_never_times_out() -> object:
    """A barrier that a rank does not join waits beyond the timeout of the process group."""
    rank, _ = start(timeout=timedelta(seconds=2))
    errors: list[str] = []
    if rank == 0:
        thread = threading.Thread(target=lambda: errors.append(error_of(dist.barrier)), daemon=True)
        thread.start()
        thread.join(8)
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - a barrier that is not hccl's.
    store.set_timeout(timedelta(seconds=60))
    if rank == 0:
        store.set("verify-done", "1")
    store.wait(["verify-done"])
    return errors[0] if errors else "waits"
