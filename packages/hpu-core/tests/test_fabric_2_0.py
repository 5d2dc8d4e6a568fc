"""Fabric of Lightning 2.0, which asks the precision plugin for gradients; any Lightning's plugin can be asked."""

import pickle
from typing import Any

import pytest
import torch

from hpu_core import _fabric_2_0, frameworks
from hpu_core.fabric import FabricSingleHPUStrategy

_Precision: Any = frameworks.current().fabric("plugins").Precision


class _Strategy(FabricSingleHPUStrategy):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(precision=_Precision())
        self.asked = 0
        _fabric_2_0.tell_of_backward(self, self.precision)

    def backward(self, tensor: torch.Tensor, module: torch.nn.Module | None, *args: Any, **kwargs: Any) -> None:
        self.asked += 1
        super().backward(tensor, module, *args, **kwargs)


def _gradient(strategy: _Strategy) -> float:
    value = torch.tensor(3.0, requires_grad=True)
    strategy.precision.backward(value.square(), None)
    assert value.grad is not None
    return value.grad.item()


def test_the_strategy_is_asked_once_for_each_gradient() -> None:
    """And the plugin computes it."""
    strategy = _Strategy()

    assert [(_gradient(strategy), strategy.asked) for _ in range(2)] == [(6.0, 1), (6.0, 2)]


def test_after_an_error_the_strategy_is_asked_again() -> None:
    """A program may catch it and go on."""
    strategy = _Strategy()
    with pytest.raises(RuntimeError, match="does not require grad"):
        strategy.precision.backward(torch.tensor(1.0), None)

    _gradient(strategy)

    assert strategy.asked == 2


def test_a_copy_asks_its_own_strategy() -> None:
    """Launchers send strategies to the processes that they spawn."""
    strategy = _Strategy()
    other = pickle.loads(pickle.dumps(strategy))  # noqa: S301 - made in the same line.

    _gradient(other)

    assert (strategy.asked, other.asked) == (0, 1)
