"""Which steps of a strategy the watchdog is told of."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from hpu_core._lightning import Strategy
from hpu_core.distributed.strategy import HPUParallelStrategyBase

_EVALUATION = ("validation_step", "test_step", "predict_step")


class _Lightning(Strategy):
    """Strategy that runs no module."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        return f"trained {args[0]}"

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        return f"evaluated {args[0]}"

    test_step = predict_step = validation_step


def _strategy(*, gathers: bool, broadcasts: bool = False) -> tuple[Any, list[str]]:
    """Return a strategy, and the names of the collectives that it enters."""
    names: list[str] = []

    class Recorded(HPUParallelStrategyBase, _Lightning):
        gathers_parameters = gathers
        broadcasts_buffers = broadcasts

        def collective(self, name: str, group: Any | None = None) -> AbstractContextManager[None]:
            names.append(name)
            return nullcontext()

    # Lightning's methods that are not called here.
    concrete: Any = Recorded
    concrete.__abstractmethods__ = frozenset()
    return object.__new__(concrete), names


@pytest.mark.parametrize(
    ("gathers", "broadcasts", "expected"), [(False, False, []), (True, False, ["forward"]), (False, True, ["forward"])]
)
def test_a_training_step_is_watched_if_it_communicates(gathers: bool, broadcasts: bool, expected: list[str]) -> None:
    """A rank that waits for no other one may finish what it does when one fails."""
    strategy, names = _strategy(gathers=gathers, broadcasts=broadcasts)

    assert strategy.training_step("a batch") == "trained a batch"
    assert names == expected


@pytest.mark.parametrize(("gathers", "expected"), [(False, []), (True, ["forward"])])
@pytest.mark.parametrize("step", _EVALUATION)
def test_evaluation_is_watched_if_it_waits_for_other_ranks(step: str, gathers: bool, expected: list[str]) -> None:
    """Ranks that do not wait for each other may evaluate different numbers of batches."""
    strategy, names = _strategy(gathers=gathers)

    assert getattr(strategy, step)("a batch") == "evaluated a batch"
    assert names == expected
