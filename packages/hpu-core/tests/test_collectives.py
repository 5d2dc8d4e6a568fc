"""Collectives on simulated cards: each `_function` runs on every rank, each test looks at what it returned."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import hpu_sim
from hpu_core import bridge, collectives, initialize_hccl
from hpu_sim.testing import SharedRankPool

# One more than float32 can tell from its neighbours, as which the bridge reduces integers.
LARGE = 2**24 + 1

OnRanks = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnRanks]:
    """Calls a function of this module on two ranks that share a process group."""
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks"), prepare=_meet) as ranks:
        yield ranks.call


def _meet() -> None:
    initialize_hccl(2, int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")


def _reduce(values: list[list[Any]], dtype: str, reduce_op: str) -> tuple[list[Any], str, bool]:
    """Reduce this rank's values; return what came of it, its type, and whether it is the tensor that was passed."""
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
def test_floats_are_reduced(reduce_op: str, expected: list[float], on_ranks: OnRanks) -> None:
    """Every operation gives all ranks its result, in the tensor that was passed."""
    results = on_ranks(_reduce, [[1.0, 2.0], [3.0, -1.0]], "float32", reduce_op)

    assert results == [(expected, "torch.float32", True)] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_mean_has_the_type_of_its_values(dtype: str, on_ranks: OnRanks) -> None:
    """Averaging changes no type."""
    results = on_ranks(_reduce, [[1.0], [2.0]], dtype, "mean")

    assert results == [([1.5], f"torch.{dtype}", True)] * 2


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [
        ("sum", [2 * LARGE + 2, -LARGE]),
        ("mean", [LARGE + 1, -LARGE // 2 + 1]),
        ("min", [LARGE, -LARGE - 5]),
        ("max", [LARGE + 2, 5]),
        ("product", [LARGE * (LARGE + 2), -5 * (LARGE + 5)]),
    ],
)
def test_integers_are_exact(reduce_op: str, expected: list[int], on_ranks: OnRanks) -> None:
    """Where float32 would lose digits, none is lost; a mean is cut off towards zero."""
    results = on_ranks(_reduce, [[LARGE, 5], [LARGE + 2, -LARGE - 5]], "int64", reduce_op)

    assert results == [(expected, "torch.int64", True)] * 2


def test_the_largest_integers_are_exact(on_ranks: OnRanks) -> None:
    """All 64 bits count."""
    results = on_ranks(_reduce, [[2**62 + 1], [2**61 + 1]], "int64", "sum")

    assert results == [([2**62 + 2**61 + 2], "torch.int64", True)] * 2


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8"])
def test_narrow_integers_are_exact(dtype: str, on_ranks: OnRanks) -> None:
    """Each type keeps its own width, also those that HCCL does not take."""
    results = on_ranks(_reduce, [[100], [27]], dtype, "sum")

    assert results == [([127], f"torch.{dtype}", True)] * 2


def test_a_narrow_sum_overflows_as_anywhere(on_ranks: OnRanks) -> None:
    """What does not fit counts modulo the type's range."""
    results = on_ranks(_reduce, [[2**31 - 1], [1]], "int32", "sum")

    assert results == [([-(2**31)], "torch.int32", True)] * 2


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [("sum", [True, True, False]), ("max", [True, True, False]), ("min", [True, False, False])],
)
def test_booleans_are_reduced(reduce_op: str, expected: list[bool], on_ranks: OnRanks) -> None:
    """A sum is whether any rank says so, a minimum whether all do."""
    results = on_ranks(_reduce, [[True, True, False], [True, False, False]], "bool", reduce_op)

    assert results == [(expected, "torch.bool", True)] * 2


def _reduce_by_object() -> list[float]:
    operations = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, None]
    values = [torch.tensor(1.0 + dist.get_rank(), device="hpu") for _ in operations]
    return [collectives.all_reduce(value, None, op).item() for value, op in zip(values, operations, strict=True)]


def test_operations_go_by_object_too(on_ranks: OnRanks) -> None:
    """A ReduceOp is as good as its name, AVG included, which HCCL has not; None is a sum."""
    assert on_ranks(_reduce_by_object) == [[3.0, 1.5, 2.0, 3.0]] * 2


def _scalar_and_columns() -> tuple[int, list[list[int]]]:
    scalar = torch.tensor(LARGE, device="hpu")
    columns = torch.arange(6, device="hpu").view(2, 3).t()
    return int(collectives.all_reduce(scalar, None, "sum")), collectives.all_reduce(columns, None, "sum").tolist()


def test_any_shape_is_reduced(on_ranks: OnRanks) -> None:
    """A scalar and a tensor whose elements lie in another order come out right."""
    assert on_ranks(_scalar_and_columns) == [(2 * LARGE, [[0, 6], [2, 8], [4, 10]])] * 2


def _reduce_in_a_group() -> float:
    groups = [dist.new_group([rank]) for rank in range(2)]
    value = torch.tensor(1.0 + dist.get_rank(), device="hpu")
    return float(collectives.all_reduce(value, groups[dist.get_rank()], "mean"))


def test_a_smaller_group_keeps_to_itself(on_ranks: OnRanks) -> None:
    """A mean is divided by the size of the group that it is over."""
    assert on_ranks(_reduce_in_a_group) == [1.0, 2.0]


def _gather() -> list[list[float]]:
    gathered: list[list[float]] = collectives.all_gather(
        torch.full((2,), float(dist.get_rank()), device="hpu", requires_grad=True), None
    ).tolist()
    return gathered


def test_tensors_are_gathered(on_ranks: OnRanks) -> None:
    """Every rank has the tensors of all, in the order of the ranks, and no gradient flows."""
    assert on_ranks(_gather) == [[[0.0, 0.0], [1.0, 1.0]]] * 2


def _broadcast(source: int) -> Any:
    tensor = torch.full((2,), float(dist.get_rank()), device="hpu")
    rank, values = collectives.broadcast((dist.get_rank(), tensor), source)
    return rank, values.tolist(), values.device.type


@pytest.mark.parametrize("source", [0, 1])
def test_objects_are_broadcast(source: int, on_ranks: OnRanks) -> None:
    """Objects of any kind arrive, with the tensors in them on the card."""
    assert on_ranks(_broadcast, source) == [(source, [float(source)] * 2, "hpu")] * 2


def _collectives_of(name: str) -> int:
    before = hpu_sim.stats()["collectives"]
    if name == "broadcast":
        collectives.broadcast("text", 0)
    else:
        collectives.all_reduce(torch.tensor(1, device="hpu"), None, "sum")
    return int(hpu_sim.stats()["collectives"] - before)


def test_objects_travel_over_the_cards(on_ranks: OnRanks) -> None:
    """An object is two collectives of the card, its size and its bytes, and none of another backend."""
    assert on_ranks(_collectives_of, "broadcast") == [2, 2]


def test_integers_are_one_collective(on_ranks: OnRanks) -> None:
    """Exactness costs bytes, and no further collective."""
    assert on_ranks(_collectives_of, "reduce") == [1, 1]


def _order_of_barrier() -> list[str]:
    calls = mock.Mock()
    with (
        mock.patch.object(bridge, "synchronize", calls.synchronize),
        mock.patch.object(dist, "barrier", calls.barrier),
    ):
        collectives.barrier()
    return [name for name, _, _ in calls.mock_calls]


def test_a_barrier_waits_for_the_cards(on_ranks: OnRanks) -> None:
    """A rank enters when its card has finished, because the barrier is one of the hosts, and leaves likewise."""
    assert on_ranks(_order_of_barrier) == [["synchronize", "barrier", "synchronize"]] * 2


def _reduce_on_cpu() -> tuple[list[float], list[int], bool]:
    floats, integers = torch.tensor([1.5 + dist.get_rank()]), torch.tensor([LARGE])
    reduced = collectives.all_reduce(floats, None, "mean")
    return reduced.tolist(), collectives.all_reduce(integers, None, "sum").tolist(), reduced is floats


def test_tensor_on_the_cpu_is_reduced_on_the_device(on_ranks: OnRanks) -> None:
    """The result is in the tensor that was passed."""
    assert on_ranks(_reduce_on_cpu) == [([2.0], [2 * LARGE], True)] * 2


def test_gathered_tensor_on_the_cpu_is_refused() -> None:
    """The error says where the tensor is and how to move it."""
    with pytest.raises(ValueError, match="must be on 'hpu' for a collective over HCCL, got one on 'cpu': move"):
        collectives.all_gather(torch.zeros(2), None)


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_unknown_operations_are_refused(error: type[Exception]) -> None:
    """The error lists those that there are; `lightning-habana` raised a TypeError."""
    message = "`reduce_op` must be 'sum', 'min', 'max', 'product', 'mean' or the ReduceOp of that name, got 'median'"
    with pytest.raises(error, match=message):
        collectives.all_reduce(torch.zeros(2), None, "median")
