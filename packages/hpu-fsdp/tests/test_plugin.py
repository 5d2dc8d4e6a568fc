"""Tests of the entry point `hpu_core.plugins`, and of Lightning's names and objects on HPU."""

from typing import Any

import pytest
import torch

from hpu_core import frameworks, plugins
from hpu_fsdp import FabricHPUFSDPStrategy, HPUFSDPStrategy
from hpu_fsdp._plugin import PLUGIN

from .conftest import OnRanks

_framework = frameworks.current()


def _strategy(api: plugins.Api, strategy: Any, **options: Any) -> Any:
    """Return the strategy that the Trainer or Fabric uses."""
    if api == "pytorch":
        trainer = _framework.pytorch().Trainer
        return trainer(accelerator="hpu", devices=1, strategy=strategy, logger=False, **options).strategy
    return _framework.fabric().Fabric(accelerator="hpu", devices=1, strategy=strategy, **options).strategy


def _lightnings(api: plugins.Api, name: str) -> Any:
    """Return a strategy class of Lightning."""
    return getattr(_framework.pytorch("strategies") if api == "pytorch" else _framework.fabric("strategies"), name)


OURS = {"pytorch": HPUFSDPStrategy, "fabric": FabricHPUFSDPStrategy}


def test_hpu_core_finds_the_entry_point() -> None:
    assert plugins.installed()["hpu-fsdp"] is PLUGIN


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_aliases_have_the_options_of_lightnings_names(api: plugins.Api) -> None:
    """Every name of Lightning's that begins with "fsdp" is an alias."""
    registry: Any = (
        _framework.pytorch("strategies").StrategyRegistry
        if api == "pytorch"
        else _framework.fabric("strategies").STRATEGY_REGISTRY
    )
    names = [name for name in registry if name.startswith("fsdp")]

    assert names
    for name in names:
        assert registry[name]["init_params"] == dict(PLUGIN.strategies[PLUGIN.aliases[name]].options)


NAMES = ("fsdp", "hpu_fsdp", "fsdp_cpu_offload", "hpu_fsdp_offload")


def _select() -> list[tuple[str, str, bool]]:
    """Return the class and `offload_params` that each name selects, by API."""
    selected = []
    for api in ("pytorch", "fabric"):
        for name in NAMES:
            strategy = _strategy(api, name)
            selected.append((api, type(strategy).__name__, strategy.cpu_offload.offload_params))
    return selected


def test_names_select_the_strategy(on_ranks: OnRanks) -> None:
    [selected] = on_ranks(_select, count=1)

    assert selected == [
        (api, ours.__name__, offload) for api, ours in OURS.items() for offload in (False, False, True, True)
    ]


def _replace(api: plugins.Api) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the class of the strategy that replaces one of Lightning's, and the attributes of both."""
    theirs = _lightnings(api, "FSDPStrategy")(
        cluster_environment=_framework.fabric("plugins.environments").LightningEnvironment(),
        cpu_offload=True,
        sharding_strategy="SHARD_GRAD_OP",
        state_dict_type="sharded",
        limit_all_gathers=False,
        auto_wrap_policy={torch.nn.Linear},
        activation_checkpointing_policy={torch.nn.Tanh},
    )
    attribute = plugins.load(str(PLUGIN.strategies["hpu_fsdp"].of(api))).wrapper_arguments
    before = _describe(theirs, attribute)
    ours = _strategy(api, theirs)
    return type(ours).__name__, before, _describe(ours, attribute)


def _describe(strategy: Any, attribute: str) -> dict[str, Any]:
    return {
        "cluster": id(strategy.cluster_environment),
        "offload": strategy.cpu_offload.offload_params,
        "sharding": strategy.sharding_strategy.name,
        "type": strategy._state_dict_type,
        "arguments": {name: repr(value) for name, value in vars(strategy)[attribute].items()},
        "checkpointing": repr(strategy._activation_checkpointing_kwargs),
    }


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_replacement_keeps_the_arguments_of_lightnings_strategy(api: plugins.Api, on_ranks: OnRanks) -> None:
    [(name, theirs, ours)] = on_ranks(_replace, api, count=1)

    assert name == OURS[api].__name__
    assert ours == theirs
    assert ours["arguments"].keys() == {"limit_all_gathers", "auto_wrap_policy", "use_orig_params"}
