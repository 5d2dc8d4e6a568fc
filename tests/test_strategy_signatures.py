"""Signatures of the strategies: positional arguments mean what they mean in Lightning's strategies."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from hpu_core import plugins
from hpu_core.registration import _registries


def _strategies() -> list[Any]:
    paths = {path for paths in plugins.strategies().values() for path in (paths.trainer, paths.fabric) if path}
    # Ray's need a part of Ray.
    return [plugins.load(path) for path in sorted(paths) if not path.startswith("hpu_ray")]


@pytest.mark.parametrize("strategy", _strategies(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_arguments_have_the_order_of_lightnings(strategy: type) -> None:
    lightning = next(base for base in strategy.__mro__ if base.__module__.partition(".")[0] in _registries.LIGHTNING)
    ours, theirs = _positional(strategy), _positional(lightning)

    assert [name for name in ours if name in theirs] == theirs


@pytest.mark.parametrize("strategy", _strategies(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_strategy_has_three_classes_above_lightnings(strategy: type) -> None:
    """Itself, the API's base, and what both APIs share; a class that is another name of one has no methods."""
    ours = [base for base in strategy.__mro__ if base.__module__.startswith("hpu_")]
    assert len([base for base in ours if any(inspect.isfunction(value) for value in vars(base).values())]) == 3


def _positional(cls: type) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
