"""Tests of the entry point `hpu_core.plugins`."""

from typing import Any

import pytest

from hpu_core import frameworks, plugins
from hpu_ddp._plugin import PLUGIN

_framework = frameworks.current()


def test_hpu_core_finds_the_entry_point() -> None:
    assert plugins.installed()["hpu-ddp"] is PLUGIN


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_class_paths_can_be_loaded(api: plugins.Api) -> None:
    loaded = {
        plugins.load(str(classes.of(api))).__name__.removeprefix("Fabric") for classes in PLUGIN.strategies.values()
    }

    assert loaded == {"HPUDDPStrategy", "HPUParallelStrategy"}


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_aliases_have_the_options_of_lightnings_names(api: plugins.Api) -> None:
    """Every name of Lightning's that begins with "ddp" is an alias."""
    registry: Any = (
        _framework.pytorch("strategies").StrategyRegistry
        if api == "pytorch"
        else _framework.fabric("strategies").STRATEGY_REGISTRY
    )
    names = [name for name in registry if name.startswith("ddp")]

    assert names
    for name in names:
        options = PLUGIN.strategies[PLUGIN.aliases[name]].options
        assert {"start_method": "popen", **registry[name]["init_params"]} == dict(options)


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_replacement_keeps_the_arguments_of_lightnings_strategy(api: plugins.Api) -> None:
    package = _framework.pytorch("strategies") if api == "pytorch" else _framework.fabric("strategies")
    cluster = _framework.fabric("plugins.environments").LightningEnvironment()
    hook = {"ddp_comm_hook": print, "model_averaging_period": 3} if api == "pytorch" else {}
    theirs = package.DDPStrategy(
        cluster_environment=cluster, start_method="spawn", static_graph=True, find_unused_parameters=True, **hook
    )
    kind = plugins.load(str(PLUGIN.strategies[PLUGIN.replacements["DDPStrategy"]].of(api)))
    ours = kind.from_lightning(theirs)

    assert ours.cluster_environment is cluster
    assert ours._start_method == "spawn"
    assert ours._ddp_kwargs == {
        "bucket_cap_mb": 230,
        "gradient_as_bucket_view": True,
        "find_unused_parameters": True,
        "static_graph": True,
    }
    if api == "pytorch":
        assert (ours._ddp_comm_hook, ours._model_averaging_period) == (print, 3)
