"""Collectives on simulated devices; the helper functions run on the ranks."""

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import hpu_sim
from hpu_core import bridge, collectives, initialize_hccl
from hpu_testing import free_port

# Not representable in float32, in which the bridge reduces integers.
INEXACT = 2**24 + 1

OnRanks = Callable[..., list[Any]]


@pytest.fixture(name="on_ranks")
def _on_ranks(on_ranks: OnRanks) -> OnRanks:
    """Return a function that calls a function of this module on two ranks with a process group."""
    on_ranks(_init_process_group, free_port())
    return on_ranks


def _init_process_group(port: int) -> None:
    if not dist.is_initialized():
        rank = int(os.environ["RANK"])
        initialize_hccl(2, rank, int(os.environ["LOCAL_RANK"]))
        # The store at MASTER_PORT may have served the strategies of other tests.
        dist.init_process_group("hccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def _reduce(values: list[list[Any]], dtype: str, reduce_op: str) -> tuple[list[Any], str, bool]:
    """Reduce this rank's values; return the result, its dtype, and whether it is the same tensor object."""
    tensor = torch.tensor(values[dist.get_rank()], dtype=getattr(torch, dtype), device="hpu")
    reduced = collectives.all_reduce(tensor, None, reduce_op)
    return reduced.tolist(), str(reduced.dtype), reduced is tensor


_FLOATS = [[1.0, 2.0], [3.0, -1.0]]
_INTEGERS = [[INEXACT, 5], [INEXACT + 2, -INEXACT - 5]]
_BOOLEANS = [[True, True, False], [True, False, False]]


@pytest.mark.parametrize(
    ("dtype", "values", "reduce_op", "expected"),
    [
        *[("float32", _FLOATS, name, [2.0, 0.5]) for name in ("mean", "avg", "MEAN")],
        ("float32", _FLOATS, "sum", [4.0, 1.0]),
        ("float32", _FLOATS, "min", [1.0, -1.0]),
        ("float32", _FLOATS, "max", [3.0, 2.0]),
        *[("float32", _FLOATS, name, [3.0, -2.0]) for name in ("product", "prod")],
        # The mean keeps the dtype.
        *[(dtype, [[1.0], [2.0]], "mean", [1.5]) for dtype in ("float32", "bfloat16", "float16", "float64")],
        # Inexact in float32; the mean is truncated towards zero.
        ("int64", _INTEGERS, "sum", [2 * INEXACT + 2, -INEXACT]),
        ("int64", _INTEGERS, "mean", [INEXACT + 1, -INEXACT // 2 + 1]),
        ("int64", _INTEGERS, "min", [INEXACT, -INEXACT - 5]),
        ("int64", _INTEGERS, "max", [INEXACT + 2, 5]),
        ("int64", _INTEGERS, "product", [INEXACT * (INEXACT + 2), -5 * (INEXACT + 5)]),
        ("int64", [[2**62 + 1], [2**61 + 1]], "sum", [2**62 + 2**61 + 2]),
        # HCCL supports none of these types.
        *[(dtype, [[100], [27]], "sum", [127]) for dtype in ("int32", "int16", "int8", "uint8")],
        # An overflow wraps.
        ("int32", [[2**31 - 1], [1]], "sum", [-(2**31)]),
        ("bool", _BOOLEANS, "sum", [True, True, False]),
        ("bool", _BOOLEANS, "max", [True, True, False]),
        ("bool", _BOOLEANS, "min", [True, False, False]),
    ],
)
def test_all_reduce(
    dtype: str, values: list[list[Any]], reduce_op: str, expected: list[Any], on_ranks: OnRanks
) -> None:
    """The tensor is reduced in place."""
    assert on_ranks(_reduce, values, dtype, reduce_op) == [(expected, f"torch.{dtype}", True)] * 2


def _reduce_by_object() -> list[float]:
    operations = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, None]
    values = [torch.tensor(1.0 + dist.get_rank(), device="hpu") for _ in operations]
    return [collectives.all_reduce(value, None, op).item() for value, op in zip(values, operations, strict=True)]


def test_reduce_op_objects(on_ranks: OnRanks) -> None:
    """A ReduceOp equals its name, also AVG, which HCCL lacks; None is a sum."""
    assert on_ranks(_reduce_by_object) == [[3.0, 1.5, 2.0, 3.0]] * 2


def _reduce_scalar_and_transposed() -> tuple[int, list[list[int]]]:
    scalar = torch.tensor(INEXACT, device="hpu")
    columns = torch.arange(6, device="hpu").view(2, 3).t()
    return int(collectives.all_reduce(scalar, None, "sum")), collectives.all_reduce(columns, None, "sum").tolist()


def test_scalar_and_transposed_tensors(on_ranks: OnRanks) -> None:
    assert on_ranks(_reduce_scalar_and_transposed) == [(2 * INEXACT, [[0, 6], [2, 8], [4, 10]])] * 2


def _reduce_in_own_group() -> float:
    groups = [dist.new_group([rank]) for rank in range(2)]
    value = torch.tensor(1.0 + dist.get_rank(), device="hpu")
    return float(collectives.all_reduce(value, groups[dist.get_rank()], "mean"))


def test_all_reduce_in_a_smaller_group(on_ranks: OnRanks) -> None:
    """The mean is the sum divided by the size of the group."""
    assert on_ranks(_reduce_in_own_group) == [1.0, 2.0]


def _gather() -> list[list[float]]:
    gathered: list[list[float]] = collectives.all_gather(
        torch.full((2,), float(dist.get_rank()), device="hpu", requires_grad=True), None
    ).tolist()
    return gathered


def test_all_gather_stacks_tensors_by_rank(on_ranks: OnRanks) -> None:
    assert on_ranks(_gather) == [[[0.0, 0.0], [1.0, 1.0]]] * 2


def _broadcast(source: int) -> Any:
    tensor = torch.full((2,), float(dist.get_rank()), device="hpu")
    rank, values = collectives.broadcast((dist.get_rank(), tensor), source)
    return rank, values.tolist(), values.device.type


@pytest.mark.parametrize("source", [0, 1])
def test_broadcast_moves_tensors_to_the_device(source: int, on_ranks: OnRanks) -> None:
    assert on_ranks(_broadcast, source) == [(source, [float(source)] * 2, "hpu")] * 2


def _count_collectives() -> list[int]:
    counts = [hpu_sim.stats()["collectives"]]
    collectives.broadcast("text", 0)
    counts.append(hpu_sim.stats()["collectives"])
    collectives.all_reduce(torch.tensor(1, device="hpu"), None, "sum")
    return [*counts, hpu_sim.stats()["collectives"]]


def test_number_of_collectives(on_ranks: OnRanks) -> None:
    """A broadcast is one of the size and one of the bytes, a reduction of integers one."""
    for before, broadcast, reduced in on_ranks(_count_collectives):
        assert (broadcast - before, reduced - broadcast) == (2, 1)


def _notices_between_barriers() -> int:
    """Return how often a warning of one line is shown."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        collectives.barrier()
        for _ in range(3):
            warnings.warn("notice", FutureWarning, stacklevel=1)
            collectives.barrier()
    return len(shown)


def test_barrier_does_not_repeat_warnings_that_were_shown(on_ranks: OnRanks) -> None:
    """Every change of the filters makes Python forget them, and torch's own warning of a barrier stays filtered."""
    assert on_ranks(_notices_between_barriers) == [1, 1]


def _barrier_calls() -> list[str]:
    calls: list[str] = []
    with (
        mock.patch.object(bridge, "synchronize", side_effect=lambda _: calls.append("synchronize")),
        mock.patch.object(dist, "barrier", partial(calls.append, "barrier")),
    ):
        collectives.barrier()
    return calls


def test_barrier_synchronizes_devices(on_ranks: OnRanks) -> None:
    """HCCL's own barrier synchronizes only the hosts."""
    assert on_ranks(_barrier_calls) == [["synchronize", "barrier", "synchronize"]] * 2


def _reduce_on_cpu() -> tuple[list[float], list[int], bool]:
    floats, integers = torch.tensor([1.5 + dist.get_rank()]), torch.tensor([INEXACT])
    reduced = collectives.all_reduce(floats, None, "mean")
    return reduced.tolist(), collectives.all_reduce(integers, None, "sum").tolist(), reduced is floats


def test_cpu_tensor_is_reduced_on_the_device(on_ranks: OnRanks) -> None:
    """The result is in the tensor that was passed."""
    assert on_ranks(_reduce_on_cpu) == [([2.0], [2 * INEXACT], True)] * 2


def test_gather_of_a_cpu_tensor_raises_an_error() -> None:
    with pytest.raises(ValueError, match="must be on 'hpu' for a collective over HCCL, got one on 'cpu': move"):
        collectives.all_gather(torch.zeros(2), None)


def test_unknown_reduce_op_raises_an_error() -> None:
    message = "`reduce_op` must be 'sum', 'min', 'max', 'product', 'mean' or the ReduceOp of that name, got 'median'"
    with pytest.raises(ValueError, match=message):
        collectives.all_reduce(torch.zeros(2), None, "median")
