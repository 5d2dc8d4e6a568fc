"""What failure detection learns of a strategy's steps and waits."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch

from hpu_core._lightning import Strategy
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.strategy import HPUStrategy


class _Lightning(Strategy):
    """Strategy that runs no module."""

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return f"ran {args[0]}"

    training_step = validation_step = test_step = predict_step = optimizer_step = _run


class _Recorded(HPUStrategy, _Lightning):
    """Strategy that notes the steps of which failure detection learns."""


def _strategy(*, saves_alone: bool = False) -> tuple[Any, list[str]]:
    """Return a strategy, and the steps and waits that it enters."""
    names: list[str] = []

    def note(name: str, group: object = None) -> AbstractContextManager[None]:
        names.append(name)
        return nullcontext()

    # Lightning's methods that are not called here.
    concrete: Any = _Recorded
    concrete.__abstractmethods__ = frozenset()
    strategy = object.__new__(concrete)
    strategy.process_groups = ProcessGroupManager(None, None)
    strategy.saves_alone = saves_alone
    strategy.process_groups.step = strategy.process_groups.wait = note
    return strategy, names


@pytest.mark.parametrize(
    ("method", "scope"),
    [
        ("training_step", "training step"),
        ("validation_step", "evaluation step"),
        ("test_step", "evaluation step"),
        ("predict_step", "evaluation step"),
        ("optimizer_step", "optimizer step"),
    ],
)
def test_each_step_is_a_scope(method: str, scope: str) -> None:
    strategy, names = _strategy()
    closure = [mock.Mock()] if method == "optimizer_step" else []

    assert getattr(strategy, method)("a batch", *closure) == "ran a batch"
    assert names == [scope]


def test_a_backward_pass_is_a_scope_between_the_hooks_of_lightning() -> None:
    """A program may replace `Strategy.backward` by what calls the strategy's own."""
    strategy, _ = _strategy()
    strategy.process_groups.step = step = mock.MagicMock()
    strategy.pre_backward(torch.tensor(0.0))
    step.assert_called_once_with("backward")
    step.return_value.__exit__.assert_not_called()
    strategy.post_backward(torch.tensor(0.0))

    step.return_value.__exit__.assert_called_once()
    assert HPUStrategy.backward is Strategy.backward


@pytest.mark.parametrize(("saves_alone", "expected"), [(True, []), (False, ["checkpoint saving"])])
def test_a_state_that_ranks_gather_needs_all_of_them(
    saves_alone: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, names = _strategy(saves_alone=saves_alone)
    strategy._lightning_module = torch.nn.Linear(1, 1)
    strategy.lightning_module_state_dict()

    assert names == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(1, {"num_replicas": 4, "rank": 3}), (2, {"num_replicas": 2, "rank": 1})]
)
def test_ranks_that_share_sequences_have_the_same_samples(
    size: int, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, _ = _strategy()
    monkeypatch.setattr(_Lightning, "distributed_sampler_kwargs", {"num_replicas": 4, "rank": 3}, raising=False)
    strategy.context_parallel_size = size

    assert strategy.distributed_sampler_kwargs == expected


def test_a_strategy_for_one_device_has_no_sampler() -> None:
    """Fabric asks for the attribute."""
    assert _strategy()[0].distributed_sampler_kwargs is None


def test_teardown_undoes_replacements_before_lightnings_own(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, _ = _strategy()
    calls: list[str] = []
    monkeypatch.setattr(_Lightning, "teardown", lambda _: calls.append("Lightning"), raising=False)
    strategy.at_teardown.callback(calls.append, "undone")
    strategy.teardown()
    strategy.teardown()

    assert calls == ["undone", "Lightning", "Lightning"]
