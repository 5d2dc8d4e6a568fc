"""Tests of the public signatures against those of the installed Lightning."""

import inspect
from typing import Any

import pytest

import hpu_deepspeed.fabric
from hpu_deepspeed import FabricHPUDeepSpeedStrategy, HPUDeepSpeedStrategy
from hpu_deepspeed._lightning import DeepSpeedStrategy, FabricDeepSpeedStrategy

_STRATEGIES = [(HPUDeepSpeedStrategy, DeepSpeedStrategy), (FabricHPUDeepSpeedStrategy, FabricDeepSpeedStrategy)]
_METHODS = ["__init__", "save_checkpoint", "load_checkpoint"]


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(("strategy", "base"), _STRATEGIES)
def test_signature_is_explicit_and_annotated(strategy: type, base: type, method: str) -> None:
    """Editors and LightningCLI show every argument with its type."""
    _, *parameters = _parameters(getattr(strategy, method)).values()
    # Options of the installed DeepSpeed's inference engine.
    further = {"kwargs"} if (strategy, method) == (HPUDeepSpeedStrategy, "__init__") else set()

    explicit = inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {parameter.name for parameter in parameters if parameter.kind is not explicit} == further
    assert inspect.Parameter.empty not in {parameter.annotation for parameter in parameters}


def test_every_argument_is_documented() -> None:
    documented = inspect.getdoc(HPUDeepSpeedStrategy) or ""

    names = _parameters(HPUDeepSpeedStrategy.__init__)
    assert [name for name in names if f"    {name}:" not in documented and f"**{name}:" not in documented] == ["self"]


def test_fabric_namespace_has_the_name_of_the_trainers_strategy() -> None:
    """Lightning's own strategies also have one name in both namespaces."""
    assert hpu_deepspeed.fabric.HPUDeepSpeedStrategy is FabricHPUDeepSpeedStrategy
