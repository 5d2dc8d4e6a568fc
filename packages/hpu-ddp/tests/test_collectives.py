"""Collectives of the Trainer's strategies; the helper functions run on the ranks."""

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from hpu_ddp import HPUDDPStrategy

from .conftest import OnRanks
from .modules import make_trainer

if TYPE_CHECKING:
    from collections.abc import Callable

# Not representable in float32, in which the bridge reduces integers.
INEXACT_AS_FLOAT32 = 2**24 + 1


def _strategy() -> HPUDDPStrategy:
    """Return a strategy after rendezvous."""
    strategy: HPUDDPStrategy = make_trainer().strategy
    strategy.setup_environment()
    return strategy


def _reduce() -> list[Any]:
    strategy = _strategy()
    values = (torch.tensor(1.0 + strategy.global_rank, device="hpu"), torch.tensor(INEXACT_AS_FLOAT32, device="hpu"))
    return [strategy.reduce(values[0]).item(), strategy.reduce(values[1], reduce_op="sum").item()]


def test_reduce_tensors(on_ranks: OnRanks) -> None:
    """The default reduction is the mean, and integers are exact."""
    assert on_ranks(_reduce) == [[1.5, 2 * INEXACT_AS_FLOAT32]] * 2


def _reduce_decisions() -> list[bool]:
    strategy = _strategy()
    on_rank_1 = strategy.global_rank == 1
    return [
        strategy.reduce_boolean_decision(decision, all=all_ranks)
        for all_ranks in (True, False)
        for decision in (on_rank_1, True)
    ]


def test_reduce_boolean_decision(on_ranks: OnRanks) -> None:
    assert on_ranks(_reduce_decisions) == [[False, True, True, True]] * 2


def _error_message(kind: str) -> str:
    strategy = _strategy()
    on_cpu = torch.zeros(2)
    calls: dict[str, Callable[[], Any]] = {
        "gather": lambda: strategy.all_gather(on_cpu),
        "gather with gradients": lambda: strategy.all_gather(on_cpu, sync_grads=True),
    }
    try:
        calls[kind]()
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["gather", "gather with gradients"])
def test_gather_of_a_cpu_tensor_raises_an_error(kind: str, on_ranks: OnRanks) -> None:
    message = "`tensor` must be on 'hpu' for a collective over HCCL, got one on 'cpu': move it with `.to('hpu')`"

    assert on_ranks(_error_message, kind) == [message] * 2


def _reduce_text() -> Any:
    return _strategy().reduce("text")


def test_reduce_returns_other_objects_unchanged(on_ranks: OnRanks) -> None:
    assert on_ranks(_reduce_text) == ["text"] * 2


def _gather() -> list[list[float]]:
    strategy = _strategy()
    gathered: list[list[float]] = strategy.all_gather(
        torch.full((2,), float(strategy.global_rank), device="hpu")
    ).tolist()
    return gathered


def test_all_gather_stacks_tensors_by_rank(on_ranks: OnRanks) -> None:
    assert on_ranks(_gather) == [[[0.0, 0.0], [1.0, 1.0]]] * 2


def _gather_with_gradients() -> list[float]:
    strategy = _strategy()
    value = torch.ones(2, device="hpu", requires_grad=True)
    weights = torch.tensor([[1.0, 2.0], [10.0, 20.0]], device="hpu")
    (strategy.all_gather(value, sync_grads=True) * weights).sum().backward()
    gradient: list[float] = value.grad.tolist() if value.grad is not None else []
    return gradient


def test_all_gather_sums_gradients_on_the_source_rank(on_ranks: OnRanks) -> None:
    assert on_ranks(_gather_with_gradients) == [[2.0, 4.0], [20.0, 40.0]]


def _broadcast() -> Any:
    strategy = _strategy()
    tensor = torch.full((2,), float(strategy.global_rank), device="hpu")
    rank, values = strategy.broadcast((strategy.global_rank, tensor), 1)
    return rank, values.tolist(), values.device.type


def test_broadcast_moves_tensors_to_the_device(on_ranks: OnRanks) -> None:
    assert on_ranks(_broadcast) == [(1, [1.0, 1.0], "hpu")] * 2


def _barrier_calls() -> list[str]:
    strategy = _strategy()
    calls: list[str] = []
    with (
        mock.patch.object(strategy.process_groups, "wait_for_device", partial(calls.append, "wait")),
        mock.patch.object(dist, "barrier", partial(calls.append, "barrier")),
    ):
        strategy.barrier("name")
    return calls


def test_barrier_waits_for_devices(on_ranks: OnRanks) -> None:
    """HCCL's own barrier synchronizes only the hosts."""
    assert on_ranks(_barrier_calls) == [["wait", "barrier", "wait"]] * 2


def test_collectives_return_their_input_before_rendezvous() -> None:
    strategy, tensor = HPUDDPStrategy(), torch.ones(2)
    strategy.barrier()

    assert strategy.reduce(tensor) is tensor
    assert strategy.all_gather(tensor) is tensor
    assert strategy.broadcast("text", 1) == "text"
