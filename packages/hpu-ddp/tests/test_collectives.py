"""Collectives of the Trainer's strategies; the helper functions run on the ranks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hpu_ddp import FabricHPUDDPStrategy, HPUDDPStrategy

from .conftest import OnRanks
from .modules import make_trainer

_GATHER_ERROR = "`tensor` must be on 'hpu' for a collective over HCCL, got one on 'cpu': move it with `.to('hpu')`"


def _of_rank(strategy: HPUDDPStrategy) -> torch.Tensor:
    return torch.full((2,), float(strategy.global_rank), device="hpu")


def _gradient_of_gather(strategy: HPUDDPStrategy) -> Any:
    value = torch.ones(2, device="hpu", requires_grad=True)
    weights = torch.tensor([[1.0, 2.0], [10.0, 20.0]], device="hpu")
    (strategy.all_gather(value, sync_grads=True) * weights).sum().backward()
    return value.grad.tolist() if value.grad is not None else []


def _decide(strategy: HPUDDPStrategy) -> list[bool]:
    decisions = [(all_ranks, decision) for all_ranks in (True, False) for decision in (strategy.global_rank == 1, True)]
    return [strategy.reduce_boolean_decision(decision, all=all_ranks) for all_ranks, decision in decisions]


def _gather_on_cpu(strategy: HPUDDPStrategy) -> str:
    with pytest.raises(ValueError, match="must be on 'hpu'") as error:
        strategy.all_gather(torch.zeros(2), sync_grads=True)
    return str(error.value)


# Each call with its results on the two ranks.
_CALLS: dict[str, tuple[Callable[[HPUDDPStrategy], Any], list[Any]]] = {
    "the default reduction is the mean": (lambda each: each.reduce(_of_rank(each)).tolist(), [[0.5, 0.5]] * 2),
    "other objects are unchanged": (lambda each: each.reduce("text"), ["text"] * 2),
    "decisions of all ranks, of any": (_decide, [[False, True, True, True]] * 2),
    "gradients are summed on the source": (_gradient_of_gather, [[2.0, 4.0], [20.0, 40.0]]),
    "a tensor of the CPU is an error": (_gather_on_cpu, [_GATHER_ERROR] * 2),
}


def _results() -> dict[str, Any]:
    """Return the results of all calls after rendezvous."""
    strategy: HPUDDPStrategy = make_trainer().strategy
    strategy.setup_environment()
    return {name: call(strategy) for name, (call, _) in _CALLS.items()}


def test_results_on_each_rank(on_ranks: OnRanks) -> None:
    first, second = on_ranks(_results)

    assert {name: [first[name], second[name]] for name in _CALLS} == {name: each for name, (_, each) in _CALLS.items()}


@pytest.mark.parametrize("kind", [HPUDDPStrategy, FabricHPUDDPStrategy])
def test_collectives_return_their_input_before_rendezvous(kind: Any) -> None:
    strategy, tensor = kind(), torch.ones(2)
    strategy.barrier()

    assert getattr(strategy, "reduce" if kind is HPUDDPStrategy else "all_reduce")(tensor) is tensor
    assert strategy.all_gather(tensor) is tensor
    assert strategy.broadcast("text", 1) == "text"
