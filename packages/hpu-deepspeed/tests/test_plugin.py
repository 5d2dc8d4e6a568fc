"""Tests of the entry point `hpu_core.plugins`."""

import pytest

from hpu_core import frameworks, plugins
from hpu_deepspeed._plugin import PLUGIN

_SUFFIXES = ["", "_stage_1", "_stage_2", "_stage_2_offload", "_stage_3", "_stage_3_offload", "_stage_3_offload_nvme"]


def test_names_are_those_of_lightning_habana() -> None:
    """Lightning's own names are aliases."""
    assert list(PLUGIN.strategies) == [f"hpu_deepspeed{suffix}" for suffix in _SUFFIXES]
    assert PLUGIN.aliases == {f"deepspeed{suffix}": f"hpu_deepspeed{suffix}" for suffix in _SUFFIXES}


def test_hpu_core_finds_the_entry_point() -> None:
    assert plugins.installed()["hpu-deepspeed"] is PLUGIN


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_class_paths_can_be_loaded(api: plugins.Api) -> None:
    paths = {str(classes.of(api)) for classes in PLUGIN.strategies.values()}
    (loaded,) = [plugins.load(path).__name__ for path in paths]

    assert loaded == ("HPUDeepSpeedStrategy" if api == "pytorch" else "FabricHPUDeepSpeedStrategy")


def test_options_equal_those_of_lightnings_names() -> None:
    registry = frameworks.current().pytorch("strategies").StrategyRegistry

    for suffix in _SUFFIXES:
        expected = registry[f"deepspeed{suffix}"]["init_params"]
        assert dict(PLUGIN.strategies[f"hpu_deepspeed{suffix}"].options) == expected


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_register_strategies_registers_all_names(api: plugins.Api) -> None:
    registry = frameworks.current().fabric("strategies.registry")._StrategyRegistry()
    strategy = plugins.load(str(PLUGIN.strategies["hpu_deepspeed"].of(api)))

    strategy.register_strategies(registry)

    assert registry.available_strategies() == sorted(PLUGIN.strategies)
    assert {name: registry[name]["init_params"] for name in registry} == {
        name: dict(classes.options) for name, classes in PLUGIN.strategies.items()
    }
