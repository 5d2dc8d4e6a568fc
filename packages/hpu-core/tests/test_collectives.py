"""Collectives on simulated devices; the helper functions run on the ranks."""

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import hpu_sim
from hpu_core import bridge, collectives, initialize_hccl
from hpu_testing import SharedRankPool

# Not representable in float32, in which the bridge reduces integers.
INEXACT = 2**24 + 1

OnRanks = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Return a function that calls a function of this module on two ranks with a process group."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_init_process_group) as ranks:
        yield ranks.call


def _init_process_group() -> None:
    initialize_hccl(2, int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")


def _reduce(values: list[list[Any]], dtype: str, reduce_op: str) -> tuple[list[Any], str, bool]:
    """Reduce this rank's values; return the result, its dtype, and whether it is the same tensor object."""
    tensor = torch.tensor(values[dist.get_rank()], dtype=getattr(torch, dtype), device="hpu")
    reduced = collectives.all_reduce(tensor, None, reduce_op)
    return reduced.tolist(), str(reduced.dtype), reduced is tensor


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [
        ("mean", [2.0, 0.5]),
        ("avg", [2.0, 0.5]),
        ("MEAN", [2.0, 0.5]),
        ("sum", [4.0, 1.0]),
        ("min", [1.0, -1.0]),
        ("max", [3.0, 2.0]),
        ("product", [3.0, -2.0]),
        ("prod", [3.0, -2.0]),
    ],
)
def test_all_reduce_of_floats(reduce_op: str, expected: list[float], on_ranks: OnRanks) -> None:
    """The tensor is reduced in place."""
    results = on_ranks(_reduce, [[1.0, 2.0], [3.0, -1.0]], "float32", reduce_op)

    assert results == [(expected, "torch.float32", True)] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_mean_keeps_the_dtype(dtype: str, on_ranks: OnRanks) -> None:
    results = on_ranks(_reduce, [[1.0], [2.0]], dtype, "mean")

    assert results == [([1.5], f"torch.{dtype}", True)] * 2


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [
        ("sum", [2 * INEXACT + 2, -INEXACT]),
        ("mean", [INEXACT + 1, -INEXACT // 2 + 1]),
        ("min", [INEXACT, -INEXACT - 5]),
        ("max", [INEXACT + 2, 5]),
        ("product", [INEXACT * (INEXACT + 2), -5 * (INEXACT + 5)]),
    ],
)
def test_integers_are_exact(reduce_op: str, expected: list[int], on_ranks: OnRanks) -> None:
    """The values are inexact in float32; the mean is truncated towards zero."""
    results = on_ranks(_reduce, [[INEXACT, 5], [INEXACT + 2, -INEXACT - 5]], "int64", reduce_op)

    assert results == [(expected, "torch.int64", True)] * 2


def test_64_bit_integers_are_exact(on_ranks: OnRanks) -> None:
    results = on_ranks(_reduce, [[2**62 + 1], [2**61 + 1]], "int64", "sum")

    assert results == [([2**62 + 2**61 + 2], "torch.int64", True)] * 2


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8"])
def test_narrow_integers_are_exact(dtype: str, on_ranks: OnRanks) -> None:
    """Types that HCCL does not support are reduced, too."""
    results = on_ranks(_reduce, [[100], [27]], dtype, "sum")

    assert results == [([127], f"torch.{dtype}", True)] * 2


def test_integer_overflow_wraps(on_ranks: OnRanks) -> None:
    results = on_ranks(_reduce, [[2**31 - 1], [1]], "int32", "sum")

    assert results == [([-(2**31)], "torch.int32", True)] * 2


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [("sum", [True, True, False]), ("max", [True, True, False]), ("min", [True, False, False])],
)
def test_all_reduce_of_booleans(reduce_op: str, expected: list[bool], on_ranks: OnRanks) -> None:
    results = on_ranks(_reduce, [[True, True, False], [True, False, False]], "bool", reduce_op)

    assert results == [(expected, "torch.bool", True)] * 2


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


def _count_collectives(name: str) -> int:
    before = hpu_sim.stats()["collectives"]
    if name == "broadcast":
        collectives.broadcast("text", 0)
    else:
        collectives.all_reduce(torch.tensor(1, device="hpu"), None, "sum")
    return int(hpu_sim.stats()["collectives"] - before)


def test_broadcast_is_two_collectives(on_ranks: OnRanks) -> None:
    """The collectives broadcast the size and the bytes."""
    assert on_ranks(_count_collectives, "broadcast") == [2, 2]


def test_all_reduce_of_integers_is_one_collective(on_ranks: OnRanks) -> None:
    assert on_ranks(_count_collectives, "reduce") == [1, 1]


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
        mock.patch.object(bridge, "synchronize", partial(calls.append, "synchronize")),
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


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_unknown_reduce_op_raises_an_error(error: type[Exception]) -> None:
    """`lightning-habana` raised a TypeError."""
    message = "`reduce_op` must be 'sum', 'min', 'max', 'product', 'mean' or the ReduceOp of that name, got 'median'"
    with pytest.raises(error, match=message):
        collectives.all_reduce(torch.zeros(2), None, "median")
