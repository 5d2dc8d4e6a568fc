"""Checks of collectives between two ranks. test_hccl.py starts the ranks and reads their reports.

If a check fails on one rank only, the other one times out, and both report a failure.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
import json
import os
import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import hpu_sim
from hpu_sim.device import runtime
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Unset when doctests import this module.
RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "2"))
PEER = 1 - RANK


def card(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor on the device."""
    return torch.tensor(values, dtype=dtype, device="hpu")


def refused(function: Callable[[], object], words: str) -> bool:
    """Return whether a call raises a RuntimeError with this text."""
    try:
        function()
    except RuntimeError as error:
        return words in str(error)
    return False


def is_torch(major: int, minor: int) -> bool:
    """Return whether torch is of a release or newer."""
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (major, minor)


def since_torch(major: int, minor: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Return a decorator that skips a check of what older torch lacks."""

    def decorate(check: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(check)
        def run() -> None:
            if is_torch(major, minor):
                check()

        return run

    return decorate


@contextlib.contextmanager
def strict_device() -> Iterator[None]:
    """Make the device strict."""
    runtime.set_strict(native(), "GAUDI2", enabled=True)
    try:
        yield
    finally:
        runtime.set_strict(native(), "GAUDI2", enabled=False)


def check_a_strict_device_ignores_tags() -> None:
    with strict_device():
        if RANK == 0:
            for tag in (1, 2):
                dist.send(card(tag), dst=1, tag=tag)
        else:
            received = [card(0), card(0)]
            for x, tag in zip(received, (2, 1), strict=True):
                dist.recv(x, src=0, tag=tag)
            assert [x.item() for x in received] == [1, 2]


def check_no_device_receives_from_any_source() -> None:
    """Check that the text is the bridge's."""
    assert refused(lambda: dist.recv(card(0)), "ProcessGroupHcclBase does not support recv")


def check_is_completed_is_true_at_once() -> None:
    """Check that it is true although the other rank has not launched it: the device waits, and the host does not."""
    store = dist.distributed_c10d._get_default_store()
    x = card(RANK + 1)
    if RANK == 1:
        store.wait(["asked"])
    with strict_device():
        work = dist.all_reduce(x, async_op=True)
        assert work is not None
        answers = (work.is_completed(), work.get_future().done(), work.wait())
        if RANK == 0:
            store.set("asked", "1")

    assert answers == (True, True, True)
    assert x.item() == 3


def check_product_is_refused() -> None:
    """Check that hccl refuses a product, which the bridge accepts and the library below it refuses."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        call = functools.partial(dist.all_reduce, card(1, dtype=dtype), op=dist.ReduceOp.PRODUCT)

        assert refused(call, "HCCL reduces by SUM, MIN or MAX")


def check_waiting_knows_no_time_limit() -> None:
    """Check that the timeouts of a wait and of the group are ignored, as in the bridge."""
    store = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.wait(["waited"])
        dist.all_reduce(card(1))
        return

    def let_the_other_join() -> None:
        # Each takes a round trip to another process, and a millisecond is long gone by the end.
        for _ in range(200):
            store.add("rounds", 1)
        store.set("waited", "")

    x = card(1)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    thread = threading.Thread(target=let_the_other_join)
    thread.start()
    work.wait(dt.timedelta(milliseconds=1))
    thread.join()

    assert x.item() == SIZE


def check_each_dtype_is_reduced_in_float32() -> None:
    """Check that large integers lose digits, as on a card."""
    kinds = (torch.int32, torch.int64, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.bool)
    for dtype in kinds:
        x = card(1, dtype=dtype)
        dist.all_reduce(x)
        assert (x.dtype, x.item()) == (dtype, torch.tensor(2).to(dtype).item())
    large = card(2**24 + 1, dtype=torch.int64)

    dist.all_reduce(large, op=dist.ReduceOp.MAX)

    assert large.item() == 2**24


def check_collectives_from_and_to_one_rank() -> None:
    total, scattered, reduced = card(RANK + 1), card(0), card(0)

    dist.reduce(total, dst=0)
    dist.scatter(scattered, [card(3), card(4)] if RANK == 1 else None, src=1)
    dist.reduce_scatter(reduced, [card(1 + RANK), card(10)])

    assert RANK == 1 or total.item() == 3
    assert (scattered.item(), reduced.item()) == (3 + RANK, (3, 20)[RANK])


def check_all_gather_of_any_dtype() -> None:
    for dtype in (torch.bool, torch.int64, torch.float16, torch.float64, getattr(torch, "float8_e4m3fn", torch.int8)):
        parts = [torch.zeros(3, device="hpu").to(dtype) for _ in range(SIZE)]

        dist.all_gather(parts, card(0, 1, RANK).to(dtype))

        assert [part.float().tolist() for part in parts] == [[0, 1, 0], [0, 1, 1]]


def check_collectives_in_inference_mode() -> None:
    """Check collectives on inference tensors, as validation uses them."""
    with torch.inference_mode():
        parts = [torch.zeros(2, device="hpu") for _ in range(SIZE)]
        total = card(RANK, 1).bfloat16()

        dist.all_gather(parts, card(RANK, 5))
        dist.all_reduce(total)

        assert [part.tolist() for part in parts] == [[0, 5], [1, 5]]
        assert total.tolist() == [1, 2]


def check_reduce_scatter_tensor() -> None:
    """Check that int64 is exact."""
    x = torch.zeros(1, device="hpu", dtype=torch.int64)

    dist.reduce_scatter_tensor(x, card(2**40, 1, dtype=torch.int64))

    assert x.item() == (2**41, 2)[RANK]


def check_all_to_all_single() -> None:
    received = torch.zeros(3 if RANK == 0 else 1, device="hpu")
    sent = card(1, 2) if RANK == 0 else card(3, 4)

    # Rank 0 keeps one element and gets two, rank 1 gets one.
    dist.all_to_all_single(received, sent, [1, 2] if RANK == 0 else [1, 0], [1, 1] if RANK == 0 else [2, 0])

    assert received.tolist() == ([1, 3, 4] if RANK == 0 else [2])


def check_all_to_all_of_several_sizes() -> None:
    received = [torch.zeros(size + 1, device="hpu") for size in range(SIZE)]

    dist.all_to_all(received, [torch.full((RANK + 1,), 10.0 * RANK + to, device="hpu") for to in range(SIZE)])

    assert [x.tolist() for x in received] == [[RANK], [10 + RANK] * 2]


def _columns(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor of two columns, and its first column, which is not contiguous."""
    rows = torch.zeros(2, 2, device="hpu", dtype=dtype)
    return rows, rows[:, 0]


def check_reductions_of_views() -> None:
    """Check that a reduction reads and writes the elements of a view, and nothing else."""
    for dtype in (torch.float32, torch.int32):
        rows, column = _columns(dtype)
        column.copy_(card(RANK, 10))

        dist.all_reduce(column)

        assert rows.tolist() == [[1, 0], [20, 0]]
    x = card(1, 1, 1, 1)
    dist.all_reduce(x[1:3])
    assert x.tolist() == [1, 2, 2, 1]


def check_copies_of_columns() -> None:
    """Check that collectives that copy bits read and write the elements of views, and nothing else."""
    sent = card(RANK, 7, 10 + RANK, 7).view(2, 2)[:, 0]
    rows, column = _columns()

    dist.broadcast(sent[:] if RANK == 0 else column, src=0)
    assert (sent if RANK == 0 else column).tolist() == [0, 10]

    rows, column = _columns()
    dist.all_gather([column, rows[:, 1]], sent)
    assert rows.tolist() == [[0, 1], [10, 11]]

    rows, column = _columns()
    dist.all_to_all([column[:1], column[1:]], [sent[:1], sent[1:]])
    assert rows.tolist() == ([[0, 0], [1, 0]] if RANK == 0 else [[10, 0], [11, 0]])

    square = torch.zeros(2, 2, device="hpu")
    dist.all_gather_into_tensor(square.T, sent)
    assert square.tolist() == [[0, 1], [10, 11]]

    rows, column = _columns()
    if RANK == 0:
        dist.send(sent, dst=1)
    else:
        dist.recv(column, src=0)
        assert rows.tolist() == [[0, 0], [10, 0]]


def check_asynchronous_work() -> None:
    """Check that the result of the work and of its future is the tensor that was passed in."""
    x, y = card(1), card(2)

    work = dist.all_reduce(x, async_op=True)
    future = dist.all_reduce(y, async_op=True).get_future()
    work.wait()
    (result,) = future.wait()

    assert work.is_completed()
    assert x.item() == 2
    assert result.device.type == "hpu"
    assert result.item() == 4


def check_what_was_begun_before_is_there_when_the_last_is() -> None:
    """Check that collectives complete in order: DeepSpeed up to 0.19.0 waits for the last one only."""
    parts = [torch.empty(2**22, device="hpu") for _ in range(SIZE)]
    half = torch.empty(2**21, device="hpu")
    dist.all_gather(parts, torch.full((2**22,), RANK + 1.0, device="hpu"), async_op=True)
    scattering = dist.reduce_scatter_tensor(half, torch.ones(SIZE * 2**21, device="hpu"), async_op=True)
    dist.all_reduce(card(1), async_op=True).wait()

    assert [part[-1].item() for part in parts] == [1, 2]
    assert half[-1].item() == SIZE
    half.zero_()
    # It is not done again.
    scattering.wait()
    assert half[-1].item() == 0


def check_barrier() -> None:
    """Check that no tensor is involved, also with the card's number on the machine, which accelerate passes."""
    hpu_sim.reset_stats()

    dist.barrier()
    dist.barrier(device_ids=[RANK])

    assert hpu_sim.stats()["collectives"] == 0


def check_objects_gathered_and_scattered() -> None:
    gathered: list[Any] | None = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK, gathered, dst=0)
    received: list[Any] = [None]
    dist.scatter_object_list(received, ["a", "b"] if RANK == 0 else None, src=0)

    assert gathered in ([0, 1], None)
    assert received == [("a", "b")[RANK]]


@since_torch(2, 1)
def check_coalesced_collectives_of_a_device() -> None:
    """Check that the manager's work waits for every collective launched inside it, whatever their types."""
    parts, exchanged, sent = (
        [torch.zeros(1, device="hpu") for _ in range(SIZE)],
        torch.zeros(2, device="hpu"),
        card(RANK),
    )

    with dist.distributed_c10d._coalescing_manager(device=torch.device("hpu"), async_ops=True) as manager:
        dist.all_gather(parts, card(RANK + 5), async_op=True)
        dist.all_to_all_single(exchanged, card(RANK, RANK + 1), async_op=True)
        dist.broadcast(sent, src=1, async_op=True)
    manager.wait()

    assert ([x.item() for x in parts], exchanged.tolist(), sent.item()) == ([5, 6], [RANK, RANK + 1], 1)


@since_torch(2, 1)
def check_coalesced_all_reduces() -> None:
    """Check the forms that torch runs as one collective of several tensors."""
    for device in (None, torch.device("hpu")):
        tensors = [card(RANK), card(RANK, 1).bfloat16()]

        with dist.distributed_c10d._coalescing_manager(device=device):
            for x in tensors:
                dist.all_reduce(x)

        assert [x.tolist() for x in tensors] == [[1], [1, 2]]


@since_torch(2, 1)
def check_coalesced_gathers_and_scatters() -> None:
    wholes = [torch.zeros(2, device="hpu"), torch.zeros(4, device="hpu")]
    with dist.distributed_c10d._coalescing_manager():
        dist.all_gather_into_tensor(wholes[0], card(RANK))
        dist.all_gather_into_tensor(wholes[1], card(RANK, 5))
    parts = [torch.zeros(1, device="hpu"), torch.zeros(2, device="hpu")]
    with dist.distributed_c10d._coalescing_manager():
        dist.reduce_scatter_tensor(parts[0], wholes[0])
        dist.reduce_scatter_tensor(parts[1], wholes[1])

    assert [x.tolist() for x in wholes] == [[0, 1], [0, 5, 1, 5]]
    assert [x.tolist() for x in parts] == [[2 * RANK], [2 * RANK, 10]]


@since_torch(2, 1)
def check_an_empty_coalescing_manager() -> None:
    with dist.distributed_c10d._coalescing_manager(device=torch.device("hpu"), async_ops=True) as manager:
        pass

    manager.wait()


@since_torch(2, 1)
def check_coalescing_ends_after_it_started() -> None:
    group = dist.distributed_c10d._get_default_group()

    assert refused(lambda: group._end_coalescing(torch.device("hpu")), "endCoalescing invoked without startCoalescing")


@since_torch(2, 1)
def check_an_error_inside_a_coalescing_manager() -> None:
    """Check that the group can coalesce again, although torch then ends no coalescing."""
    group, device = dist.distributed_c10d._get_default_group(), torch.device("hpu")
    group._start_coalescing(device)
    assert refused(lambda: group.allreduce([card(1)], dist.ReduceOp.AVG), "Unsupported ReduceOp")
    x = card(RANK)

    with dist.distributed_c10d._coalescing_manager(device=device):
        dist.all_reduce(x)

    assert x.item() == 1


def check_batched_sends_and_receives() -> None:
    received = [torch.zeros(1, device="hpu"), torch.zeros(2, device="hpu")]
    operations = [
        dist.P2POp(dist.isend, card(RANK), PEER),
        dist.P2POp(dist.irecv, received[0], PEER),
        dist.P2POp(dist.isend, card(RANK, 7), PEER),
        dist.P2POp(dist.irecv, received[1], PEER),
    ]

    for work in dist.batch_isend_irecv(operations):
        work.wait()

    assert [x.tolist() for x in received] == [[PEER], [PEER, 7]]


@since_torch(2, 1)
def check_coalesced_sends_and_receives() -> None:
    """Check that one work stands for all of them, as with NCCL."""
    received = torch.zeros(1, device="hpu")

    with dist.distributed_c10d._coalescing_manager(device=torch.device("hpu"), async_ops=True) as manager:
        dist.isend(card(RANK + 5), PEER)
        dist.irecv(received, PEER)
    manager.wait()

    assert len(manager.works) == 1
    assert received.item() == PEER + 5


@since_torch(2, 4)
def check_functional_collectives() -> None:
    """Check the collectives that return tensors, on whose use torch waits."""
    import torch.distributed._functional_collectives as functional

    group: Any = dist.group.WORLD
    x = card(RANK, RANK + 1)

    assert functional.all_reduce(x, "sum", group).tolist() == [1, 3]
    assert functional.all_gather_tensor(x, 0, group).tolist() == [0, 1, 1, 2]
    assert functional.all_gather_tensor(x.view(1, 2), 1, group).tolist() == [[0, 1, 1, 2]]
    assert functional.reduce_scatter_tensor(x, "sum", 0, group).tolist() == [1 + 2 * RANK]
    assert functional.broadcast(x, 1, group).tolist() == [1, 2]
    assert functional.all_to_all_single(x, [1, 1], [1, 1], group).tolist() == [RANK, RANK + 1]
    assert [y.tolist() for y in functional.all_reduce_coalesced([x, x + 1], "max", group)] == [[1, 2], [2, 3]]
    gathered = functional.all_gather_into_tensor_coalesced([x, x + 1], group)
    assert [y.tolist() for y in gathered] == [[0, 1, 1, 2], [1, 2, 2, 3]]
    scattered = functional.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], group)
    assert [y.tolist() for y in scattered] == [[1 + 2 * RANK], [3 + 2 * RANK]]


def check_collectives_are_counted() -> None:
    """Check that the bytes are those that this rank contributes."""
    x = torch.ones(10, device="hpu")
    whole = torch.ones(20, device="hpu")
    hpu_sim.reset_stats()

    dist.all_reduce(x)
    dist.all_gather_into_tensor(whole, x)
    dist.reduce_scatter_tensor(x, whole)

    stats = hpu_sim.stats()
    assert (stats["collectives"], stats["collective_bytes"]) == (3, 40 + 40 + 80)
    assert (stats["h2d_copies"], stats["d2h_copies"]) == (0, 0)


def check_a_profile_sees_when_collectives_ran() -> None:
    """Check that an event ends with its collective, and that of a send or receive with the wait for it."""
    torch.hpu.synchronize()  # type: ignore[attr-defined] # the bridge brings it; earlier checks leave collectives
    native().start_device_trace()

    dist.all_reduce(card(1, 2))
    if RANK == 0:
        dist.send(card(1, 2, 3), 1)
    else:
        dist.recv(card(1, 2, 3), 0)

    collectives = [each for each in native().stop_device_trace() if each[0] == "collective"]
    # The transfer has a stream of its own, and may end first.
    ended = sorted((name, size) for _, name, *_, size in collectives)
    assert ended == [("allreduce", 8), (("send", "recv")[RANK], 12)]
    assert all(begin < end for _, _, begin, end, *_ in collectives)


def check_a_collective_keeps_no_python_object() -> None:
    """Check that no thread destroys captured Python objects at shutdown, when it is too late."""
    kept: set[int] = set()
    there = weakref.ref(kept)
    torch._C._stash_obj_in_tls("kept", kept)  # As torch's own backward pass does.
    store = dist.distributed_c10d._get_default_store()
    if RANK == 1:
        store.wait(["looked"])

    work = dist.all_reduce(card(1), async_op=True)
    torch._C._stash_obj_in_tls("kept", None)
    del kept
    gone = there() is None
    store.set("looked", "")
    work.wait()

    assert gone


def check_futures_are_destroyed_by_a_thread_of_python() -> None:
    """Check that gloo's threads destroy no Python object, which aborts a process that exits."""
    own = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    store = dist.distributed_c10d._get_default_store()
    threads: list[int] = []
    x = card(RANK)
    weakref.finalize(x, lambda: threads.append(threading.get_native_id()))
    if RANK == 1:
        store.wait(["rank 0 has dropped its future"])
    dist.all_reduce(x, async_op=True).get_future()
    del x
    if RANK == 0:
        store.set("rank 0 has dropped its future", "")
    dist.barrier()
    # The thread of gloo may still hold it.
    for _ in range(10_000):
        if threads:
            break
        dist.all_reduce(card(0), group=own)

    assert threads == [threading.get_native_id()]


def check_a_collective_ends_the_graph() -> None:
    """Check that the tensor to send is computed."""
    torch.hpu.synchronize()  # type: ignore[attr-defined] # the bridge brings it
    hpu_sim.reset_stats()

    dist.all_reduce(torch.ones(3, device="hpu") * 2)

    assert hpu_sim.stats()["graphs"] == 1


@since_torch(2, 8)
def check_a_local_function_returns_partial_sums() -> None:
    """Check that a partial DTensor adds up when it is redistributed, and that its gradient is sharded."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import local_map

    mesh = init_device_mesh("hpu", (SIZE,))
    weights, rows = torch.arange(8.0).reshape(2, 4), torch.ones(4, 3)
    sharded = distribute_tensor(weights.to("hpu"), mesh, [Shard(1)]).requires_grad_()
    multiply = local_map(torch.mm, out_placements=[Partial()], in_placements=([Shard(1)], [Shard(0)]), device_mesh=mesh)

    result = multiply(sharded, distribute_tensor(rows.to("hpu"), mesh, [Shard(0)]))
    result.redistribute(placements=[Replicate()]).to_local().sum().backward()

    assert result.placements == (Partial(),)
    assert torch.equal(result.full_tensor().cpu(), weights @ rows)
    assert isinstance(sharded.grad, DTensor)
    assert sharded.grad.placements == (Shard(1),)
    assert torch.equal(sharded.grad.full_tensor().cpu(), torch.full((2, 4), 3.0))


def check_a_read_waits_for_a_collective_that_nobody_waits_for() -> None:
    """Check that reads have the results of collectives by address, as on the bridge."""
    reduced, gathered = card(RANK + 1), torch.zeros(SIZE, device="hpu")
    with strict_device():
        dist.all_reduce(reduced, async_op=True)
        assert reduced.item() == 3
        dist.all_gather_into_tensor(gathered, reduced + RANK, async_op=True)

    assert reduced.item() == 3
    assert gathered.tolist() == [3, 4]


def report() -> dict[str, str]:
    """Run every check, and return the traceback of each failure, or an empty string."""
    found = {}
    for name, function in inspect.getmembers(sys.modules[__name__], inspect.isfunction):
        if name.startswith("check_"):
            try:
                function()
            except Exception:  # noqa: BLE001 - whatever is wrong is the test's to tell
                found[name] = traceback.format_exc()
            else:
                found[name] = ""
    return found


if __name__ == "__main__":
    dist.init_process_group("hccl", timeout=dt.timedelta(seconds=20))
    results = report()
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(results))
