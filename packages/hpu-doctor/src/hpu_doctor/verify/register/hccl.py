"""Collectives of HCCL: operations, dtypes, coalescing, barriers, and what never times out. All cards take part."""

import functools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hpu_core import bridge, hccl
from hpu_core.launcher_env import find_launcher_env
from hpu_doctor.verify.assumption import Contains, Matches, Program, Subject
from hpu_doctor.verify.register._tools import BRIDGE, TORCH, error_of

SUBJECT = Subject("Collectives", ranks=True, quick=False, seconds=120)

# A rank that has ended has taken the store of the job along, which others may still need.
_LEAVE_SECONDS = 20

_BASE = BRIDGE + "distributed/hccl/process_group_hccl_base.cpp:"
_UTILITIES = BRIDGE + "backend/helpers/collective_utils.cpp:"


def as_job(program: Program) -> Program:
    """Return a program after which rank 0, which has the store of the job, waits for the others."""

    @functools.wraps(program)
    def run() -> object:
        try:
            return program()
        finally:
            _leave()

    return run


def assume(**fields: Any) -> Callable[[Program], Program]:
    """Return a decorator that adds an assumption on ranks, with the fields of `Assumption`."""
    return lambda program: SUBJECT.assume(**fields)(as_job(program))


def start() -> tuple[int, int]:
    """Create the process group of the job, and return rank and number of ranks."""
    env = find_launcher_env()
    if env is None:
        raise RuntimeError("the process has no rank")
    hccl.initialize_hccl(env.world_size, env.rank, env.local_rank)
    bridge.open_device()
    dist.init_process_group("hccl", rank=env.rank, world_size=env.world_size)
    return env.rank, env.world_size


def _leave() -> None:
    if not dist.is_initialized():
        return
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it.
    left = store.add("verify-left", 1)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while dist.get_rank() == 0 and left < dist.get_world_size() and time.monotonic() < deadline:
        time.sleep(0.02)
        left = store.add("verify-left", 0)


def _reduced(value: float, operation: str = "SUM", dtype: str = "float32") -> Any:
    """Return the reduction of a value plus the rank over all ranks, of one element per rank."""
    rank, _ = start()
    tensor = torch.tensor([value + rank]).to(getattr(torch, dtype)).to("hpu")
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation))
    return tensor.cpu()[0].item()


def _refused(operation: Callable[[Any], object], dtype: str = "float32") -> str:
    """Return the error of an operation on a tensor, at the latest when the card is waited for."""
    start()
    tensor = torch.ones(4, device="hpu").to(getattr(torch, dtype))

    def run() -> None:
        operation(tensor)
        bridge.synchronize()

    return error_of(run)


@assume(
    source=_UTILITIES + "39-64",
    expected=True,
    means={"hpu-ddp": "gradients would not be summed.", "hpu-fsdp": "gradients would not be summed."},
)
def all_reduce_sums() -> object:
    """`all_reduce` sums float32 over the ranks."""
    return _reduced(1.0) == sum(1.0 + rank for rank in range(dist.get_world_size()))


@assume(
    source=_UTILITIES + "39-64; HCL hcl/src/hcl_utils.h:378-393",
    expected=[1.0, True],
    means={"hpu-core": "reductions of metrics by minimum or maximum would be wrong."},
)
def minimum_and_maximum() -> object:
    """`all_reduce` takes MIN and MAX."""
    rank, size = start()
    low, high = (torch.tensor([1.0 + rank]).to("hpu") for _ in range(2))
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return [low.cpu().item(), high.cpu().item() == size]


@assume(
    source=_UTILITIES + "39-64; met on driver 1.24 as well",
    expected=Contains("Unsupported ReduceOp for HCCL process group"),
    means={
        "hpu-core": "means would be sums with a division that is not needed.",
        "hpu-fsdp": "forcing sums in FSDP2 would be needless.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def average_is_refused() -> object:
    """`all_reduce` refuses AVG."""
    return _refused(lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.AVG))


@assume(
    source="HCL hcl/src/hcl_utils.h:378-393: unsupported reduction op",
    expected=Matches("(?!no error).*"),
    means={"hpu-core": "a product over ranks is refused where it would work."},
)
def product_is_refused() -> object:
    """`all_reduce` refuses PRODUCT of float32: the bridge takes it, and the library below does not."""
    return _refused(lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT))


@assume(
    source=_UTILITIES + "39-64",
    expected=Matches("(?!no error).*"),
    means={"hpu-fsdp": "gradient divide factors of FSDP2 would work."},
)
def bitwise_operations_are_refused() -> object:
    """`all_reduce` refuses BAND."""
    return _refused(lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.BAND), "int32")


@assume(
    source=_UTILITIES + "26-66",
    expected=Contains("Input tensor data type is not supported for HCCL process group"),
    means={"hpu-doctor": "`explain` would not know the message."},
)
def int16_is_refused() -> object:
    """Collectives refuse int16."""
    return _refused(dist.all_reduce, "int16")


@assume(
    source=_BASE + "417-425,487-492",
    expected=True,
    means={"hpu-core": "counters that are summed over ranks would be exact."},
)
def large_int64_sums_lose_bits() -> object:
    """`all_reduce` sums int64 in float32: odd numbers above 2**24 are not exact."""
    rank, size = start()
    tensor = torch.tensor([2**24 + 1 if rank == 0 else 0], dtype=torch.int64).to("hpu")
    dist.all_reduce(tensor)
    return size > 1 and tensor.cpu().item() != 2**24 + 1


@assume(
    source=_BASE + "417-425,487-492",
    expected=True,
    means={"hpu-core": "small counters, such as numbers of samples, would be wrong."},
)
def small_int64_sums_are_exact() -> object:
    """`all_reduce` of int64 is exact below 2**24."""
    total = _reduced(1000, dtype="int64")
    return total == sum(1000 + rank for rank in range(dist.get_world_size()))


@assume(
    source=_BASE + "417-425",
    expected=[True, "torch.float16"],
    means={"hpu-ddp": "float16 gradients could overflow in the sum of many ranks."},
)
def float16_sums_through_float32() -> object:
    """`all_reduce` of float16 keeps the dtype and sums in float32."""
    rank, size = start()
    # In float16, 2048 + 1 + 1 is 2048 if the ones are added one by one, and 2050 otherwise.
    tensor = torch.tensor([2048.0 if rank == 0 else 1.0], dtype=torch.float16).to("hpu")
    dist.all_reduce(tensor)
    exact = torch.tensor(2048.0 + size - 1).to(torch.float16).item()
    return [tensor.cpu().item() == exact, str(tensor.dtype)]


@assume(
    source=_BASE + "417-425",
    expected=True,
    means={"hpu-core": "masks could not be combined over ranks."},
)
def bool_reduces_through_float32() -> object:
    """`all_reduce` of bool by MAX is true where any rank is."""
    rank, size = start()
    tensor = torch.tensor([rank == size - 1]).to("hpu")
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.cpu().item()


@assume(
    source=_BASE + "1417-1453,1484-1492",
    expected=True,
    means={"hpu-fsdp": "shards of integers would lose bits."},
)
def reduce_scatter_of_int64_is_exact() -> object:
    """`reduce_scatter_tensor` sums int64 as such."""
    rank, size = start()
    inputs = torch.full((size,), 2**24 + 1 if rank == 0 else 0, dtype=torch.int64).to("hpu")
    output = torch.zeros(1, dtype=torch.int64).to("hpu")
    dist.reduce_scatter_tensor(output, inputs)
    return output.cpu().item() == 2**24 + 1


@assume(
    source=_BASE + "86-107,330,1102,1666",
    expected=[1, 2, 3],
    means={"hpu-core": "objects of an odd number of bytes could not be sent."},
)
def odd_bytes_are_broadcast() -> object:
    """`broadcast` of three bytes arrives."""
    rank, _ = start()
    values = [1, 2, 3] if rank == 0 else [0, 0, 0]
    tensor = torch.tensor(values, dtype=torch.uint8).to("hpu")
    dist.broadcast(tensor, 0)
    result = tensor.cpu().tolist()
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, result)
    return next((other for other in gathered if other != [1, 2, 3]), [1, 2, 3])


@assume(
    source=BRIDGE + "core/torch_overwrites.py, _get_pg_default_device",
    expected={"step": 7},
    means={"hpu-core": "Lightning's broadcast of objects, of paths of checkpoints for one, would fail."},
)
def objects_are_broadcast() -> object:
    """`broadcast_object_list` works over hccl."""
    rank, size = start()
    objects = [{"step": 7} if rank == size - 1 else None]
    dist.broadcast_object_list(objects, size - 1)
    return objects[0]


@assume(
    source=TORCH + ": the group has no backend for CPU tensors",
    expected=Contains("device type cpu"),
    means={"hpu-core": "tensors on the CPU would not have to be moved before a collective."},
)
def cpu_tensors_are_refused() -> object:
    """A collective of a CPU tensor is an error in a process group of hccl."""
    start()
    return error_of(lambda: dist.all_reduce(torch.ones(1)))


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
    env = find_launcher_env()
    if env is None:
        raise RuntimeError("the process has no rank")
    hccl.initialize_hccl(env.world_size, env.rank, env.local_rank)
    bridge.open_device()
    short = timedelta(seconds=2)
    dist.init_process_group("hccl", rank=env.rank, world_size=env.world_size, timeout=short)
    errors: list[str] = []
    if env.rank == 0:
        thread = threading.Thread(target=lambda: errors.append(error_of(dist.barrier)), daemon=True)
        thread.start()
        thread.join(8)
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - a barrier that is not hccl's.
    store.set_timeout(timedelta(seconds=60))
    if env.rank == 0:
        store.set("verify-done", "1")
    store.wait(["verify-done"])
    if env.rank == 0:
        return errors[0] if errors else "waits"
    return "waits"


@assume(
    source=BRIDGE + "distributed/hccl/process_group_eager_hccl.cpp:204-235",
    expected=[True, True],
    mode="eager",
    means={"hpu-ddp": "asynchronous reductions of gradients would have to be waited for otherwise."},
)
def wait_returns_true() -> object:
    """`wait()` of an asynchronous collective returns true, and the result is right afterwards."""
    _, size = start()
    tensor = torch.ones(1024, device="hpu")
    work: Any = dist.all_reduce(tensor, async_op=True)
    waited = work.wait()
    return [bool(waited), tensor.cpu()[0].item() == size]


@assume(
    source=BRIDGE + "distributed/hccl/process_group_eager_hccl.cpp:204-235, is_completed() calls wait",
    expected=True,
    mode="eager",
    simulator="strict",
    means={"hpu-core": "a collective that is stuck could be recognized by asking."},
)
def is_completed_is_always_true() -> object:
    """`is_completed()` waits, and is true."""
    start()
    work: Any = dist.all_reduce(torch.ones(1 << 16, device="hpu"), async_op=True)
    return bool(work.is_completed())


@assume(
    source=_BASE + "286-312",
    expected=Contains("Coalescing is already in progress"),
    simulator="strict",
    means={"hpu-fsdp": "nested coalescing of collectives would work."},
)
def coalescing_does_not_nest() -> object:
    """Coalescing within coalescing is an error."""
    start()
    group: Any = dist.distributed_c10d._get_default_group()  # noqa: SLF001 - the class that has the method.

    def nest() -> None:
        group._start_coalescing(torch.device("hpu"))  # noqa: SLF001 - as torch calls it.
        group._start_coalescing(torch.device("hpu"))  # noqa: SLF001 - as torch calls it.

    return error_of(nest)


@assume(
    source=_BASE + "1656-1782",
    expected=[True, True],
    means={"hpu-doctor": "the check of links would not work.", "hpu-sim": "programs with pipelines would fail."},
)
def neighbors_exchange() -> object:
    """`batch_isend_irecv` sends to the next rank and receives from the one before."""
    rank, size = start()
    own, received = torch.full((5,), float(rank)).to("hpu"), torch.zeros(5, device="hpu")
    operations = [
        dist.P2POp(dist.isend, own, (rank + 1) % size),
        dist.P2POp(dist.irecv, received, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [received.cpu()[0].item() == (rank - 1) % size, own.cpu()[0].item() == rank]


@assume(
    source=_BASE + "1656-1782: does not support recv",
    expected=Matches("(?!no error).*"),
    means={"hpu-sim": "a program that receives from any rank would run on a card."},
)
def receiving_from_any_rank_is_refused() -> object:
    """`recv` without a source is an error."""
    rank, _ = start()
    tensor = torch.zeros(2, device="hpu")
    return error_of(lambda: dist.recv(tensor)) if rank == 0 else "no error"


@assume(
    source=_BASE + " allgather, _allgather_base",
    expected=True,
    means={"hpu-fsdp": "parameters would not be gathered.", "hpu-core": "`all_gather` of metrics would fail."},
)
def all_gather_into_tensor() -> object:
    """`all_gather_into_tensor` has the parts of all ranks, in their order."""
    rank, size = start()
    output = torch.zeros(2 * size, device="hpu")
    dist.all_gather_into_tensor(output, torch.full((2,), float(rank)).to("hpu"))
    return output.cpu().tolist() == [float(rank) for rank in range(size) for _ in range(2)]


@assume(
    source=_BASE + " alltoall",
    expected=True,
    means={"hpu-sim": "mixtures of experts over ranks would fail on a card."},
)
def all_to_all_exchanges() -> object:
    """`all_to_all_single` sends each rank its part."""
    rank, size = start()
    output = torch.zeros(size, device="hpu")
    dist.all_to_all_single(output, torch.full((size,), float(rank)).to("hpu"))
    return output.cpu().tolist() == [float(rank) for rank in range(size)]


@assume(
    source=_BASE + " gather, by send and receive",
    expected=True,
    means={"hpu-core": "`gather` of predictions would fail."},
)
def gather_reaches_one_rank() -> object:
    """`gather` has the parts of all ranks on one."""
    rank, size = start()
    parts = [torch.zeros(1, device="hpu") for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((1,), float(rank)).to("hpu"), parts)
    return parts is None or [part.cpu().item() for part in parts] == [float(rank) for rank in range(size)]


@assume(
    source=BRIDGE + "distributed/hccl/process_group_eager_hccl.cpp:109-131: warns and copies",
    expected=True,
    means={"hpu-fsdp": "views of a flat buffer would have to be copied before a collective."},
)
def strided_tensors_are_reduced() -> object:
    """`all_reduce` of a non-contiguous tensor gives the sum."""
    _, size = start()
    base = torch.ones(4, 4, device="hpu")
    column = base.t()
    dist.all_reduce(column)
    return bool((column.cpu() == size).all())


@assume(
    source="torch's init_device_mesh; a field report of 1.22.2",
    expected=["hpu", True],
    means={"hpu-fsdp": "device meshes of hpu could not be made."},
    releases=">=1.19",
)
def device_mesh_of_hpu() -> object:
    """`init_device_mesh("hpu", ...)` makes a mesh of all ranks."""
    _, size = start()
    mesh = dist.device_mesh.init_device_mesh("hpu", (size,))
    return [mesh.device_type, mesh.size() == size]


@assume(
    source="Intel's page of DDP; lightning-habana: device_ids=None",
    expected=True,
    means={"hpu-ddp": "gradients of ranks would differ, and so would their weights."},
)
def ddp_averages_gradients() -> object:
    """DistributedDataParallel without `device_ids` averages gradients over the ranks."""
    rank, size = start()
    layer = torch.nn.Linear(1, 1, bias=False).to("hpu")
    wrapped = torch.nn.parallel.DistributedDataParallel(layer, gradient_as_bucket_view=True)
    wrapped(torch.full((1, 1), float(rank)).to("hpu")).sum().backward()
    gradient = layer.weight.grad.cpu().item() if layer.weight.grad is not None else None
    dist.barrier()
    return gradient is not None and abs(gradient - sum(range(size)) / size) < 1e-2  # noqa: PLR2004 - bfloat16.


@assume(
    source=BRIDGE + "core/torch_overwrites.py, new_group",
    expected=[True, True],
    means={"hpu-fsdp": "hybrid sharding and tensor parallelism would fail."},
)
def groups_of_some_ranks() -> object:
    """A group of the even ranks reduces over them alone."""
    rank, size = start()
    even = list(range(0, size, 2))
    group = dist.new_group(even)
    tensor = torch.ones(1, device="hpu")
    if rank in even:
        dist.all_reduce(tensor, group=group)
    value = tensor.cpu().item()
    dist.barrier()
    return [value == (len(even) if rank in even else 1), size > len(even)]
