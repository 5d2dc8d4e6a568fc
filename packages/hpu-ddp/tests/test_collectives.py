"""What ranks exchange, on simulated cards: each `_function` runs on every rank, each test looks at what it returned."""

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from hpu_core import bridge
from hpu_ddp import HPUDDPStrategy

from .conftest import OnRanks
from .modules import trainer

if TYPE_CHECKING:
    from collections.abc import Callable

# One more than float32 can tell from its neighbours, as which the bridge reduces integers.
LARGE = 2**24 + 1


def _strategy() -> HPUDDPStrategy:
    """Return a strategy whose ranks have met."""
    strategy: HPUDDPStrategy = trainer().strategy
    strategy.setup_environment()
    return strategy


def _reduce() -> list[Any]:
    strategy = _strategy()
    values = (torch.tensor(1.0 + strategy.global_rank, device="hpu"), torch.tensor(LARGE, device="hpu"))
    return [strategy.reduce(values[0]).item(), strategy.reduce(values[1], reduce_op="sum").item()]


def test_tensors_are_reduced(on_ranks: OnRanks) -> None:
    """A mean unless something else is asked for; integers come out exact."""
    assert on_ranks(_reduce) == [[1.5, 2 * LARGE]] * 2


def _decide() -> list[bool]:
    strategy = _strategy()
    own = strategy.global_rank == 1
    return [
        strategy.reduce_boolean_decision(decision, all=every) for every in (True, False) for decision in (own, True)
    ]


def test_decisions_are_reduced(on_ranks: OnRanks) -> None:
    """Whether all ranks say so, or any: what one says alone, and what both say."""
    assert on_ranks(_decide) == [[False, True, True, True]] * 2


def _message_of_error(kind: str) -> str:
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
    return "no error"


@pytest.mark.parametrize("kind", ["gather", "gather with gradients"])
def test_tensors_on_the_cpu_are_refused(kind: str, on_ranks: OnRanks) -> None:
    """The error says where the tensor is and how to move it."""
    message = "`tensor` must be on 'hpu' for a collective over HCCL, got one on 'cpu': move it with `.to('hpu')`"

    assert on_ranks(_message_of_error, kind) == [message] * 2


def _reduce_no_tensor() -> Any:
    return _strategy().reduce("text")


def test_what_is_no_tensor_is_returned(on_ranks: OnRanks) -> None:
    """As in Lightning."""
    assert on_ranks(_reduce_no_tensor) == ["text"] * 2


def _gather() -> list[list[float]]:
    strategy = _strategy()
    gathered: list[list[float]] = strategy.all_gather(
        torch.full((2,), float(strategy.global_rank), device="hpu")
    ).tolist()
    return gathered


def test_tensors_are_gathered(on_ranks: OnRanks) -> None:
    """Every rank has the tensors of all, in the order of the ranks."""
    assert on_ranks(_gather) == [[[0.0, 0.0], [1.0, 1.0]]] * 2


def _gather_with_gradients() -> list[float]:
    strategy = _strategy()
    value = torch.ones(2, device="hpu", requires_grad=True)
    weights = torch.tensor([[1.0, 2.0], [10.0, 20.0]], device="hpu")
    (strategy.all_gather(value, sync_grads=True) * weights).sum().backward()
    gradient: list[float] = value.grad.tolist() if value.grad is not None else []
    return gradient


def test_gradients_flow_back_to_their_rank(on_ranks: OnRanks) -> None:
    """What the ranks' losses owe to a part is summed up at the rank that the part came from."""
    assert on_ranks(_gather_with_gradients) == [[2.0, 4.0], [20.0, 40.0]]


def _broadcast() -> Any:
    strategy = _strategy()
    tensor = torch.full((2,), float(strategy.global_rank), device="hpu")
    rank, values = strategy.broadcast((strategy.global_rank, tensor), 1)
    return rank, values.tolist(), values.device.type


def test_objects_are_broadcast(on_ranks: OnRanks) -> None:
    """Objects of any kind arrive, with the tensors in them on the card."""
    assert on_ranks(_broadcast) == [(1, [1.0, 1.0], "hpu")] * 2


def _order_of_barrier() -> list[str]:
    strategy = _strategy()
    calls = mock.Mock()
    with (
        mock.patch.object(bridge, "synchronize", calls.synchronize),
        mock.patch.object(dist, "barrier", calls.barrier),
    ):
        strategy.barrier("name")
    return [name for name, _, _ in calls.mock_calls]


def test_a_barrier_waits_for_the_cards(on_ranks: OnRanks) -> None:
    """A rank enters when its card has finished, because the barrier is one of the hosts, and leaves likewise."""
    assert on_ranks(_order_of_barrier) == [["synchronize", "barrier", "synchronize"]] * 2


def test_without_other_ranks_nothing_is_exchanged() -> None:
    """Before the ranks have met, each collective returns what it got, also for a tensor on the CPU."""
    strategy, tensor = HPUDDPStrategy(), torch.ones(2)
    strategy.barrier()

    assert strategy.reduce(tensor) is tensor
    assert strategy.all_gather(tensor) is tensor
    assert strategy.broadcast("text", 1) == "text"
