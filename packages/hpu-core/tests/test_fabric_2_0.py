"""Tests of the workaround for Fabric 2.0, with the precision plugin of the installed Lightning."""

import pickle
from typing import Any

import pytest
import torch

from hpu_core import _fabric_2_0, frameworks
from hpu_core.fabric import FabricSingleHPUStrategy

_Precision: Any = frameworks.current().fabric("plugins").Precision


class _Strategy(FabricSingleHPUStrategy):
    """Strategy that counts its `backward` calls."""

    def __init__(self) -> None:
        super().__init__(precision=_Precision())
        self.calls = 0
        _fabric_2_0.route_backward_through_strategy(self, self.precision)

    def backward(self, tensor: torch.Tensor, module: torch.nn.Module | None, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        super().backward(tensor, module, *args, **kwargs)


def _gradient(strategy: _Strategy) -> float:
    value = torch.tensor(3.0, requires_grad=True)
    strategy.precision.backward(value.square(), None)
    assert value.grad is not None
    return value.grad.item()


def test_plugin_calls_strategy_once() -> None:
    strategy = _Strategy()

    assert [(_gradient(strategy), strategy.calls) for _ in range(2)] == [(6.0, 1), (6.0, 2)]


def test_plugin_calls_strategy_after_an_error() -> None:
    strategy = _Strategy()
    with pytest.raises(RuntimeError, match="does not require grad"):
        strategy.precision.backward(torch.tensor(1.0), None)

    _gradient(strategy)

    assert strategy.calls == 2


def test_copy_calls_its_own_strategy() -> None:
    """Spawning launchers pickle strategies."""
    strategy = _Strategy()
    other = pickle.loads(pickle.dumps(strategy))  # noqa: S301 - made in the same line.

    _gradient(other)

    assert (strategy.calls, other.calls) == (0, 1)
