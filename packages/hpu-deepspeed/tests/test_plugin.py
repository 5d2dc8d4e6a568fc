"""What hpu-core is told of this package."""

import pytest

from hpu_core import frameworks
from hpu_core import plugins
from hpu_deepspeed._plugin import PLUGIN

_NAMES = ["", "_stage_1", "_stage_2", "_stage_2_offload", "_stage_3", "_stage_3_offload", "_stage_3_offload_nvme"]


def test_the_names_are_those_of_old() -> None:
    """Those of lightning-habana, and Lightning's own mean them on Gaudi."""
    assert list(PLUGIN.strategies) == [f"hpu_deepspeed{name}" for name in _NAMES]
    assert PLUGIN.aliases == {f"deepspeed{name}": f"hpu_deepspeed{name}" for name in _NAMES}


def test_hpu_core_finds_it() -> None:
    """By its entry point."""
    assert plugins.installed()["hpu-deepspeed"] is PLUGIN


@pytest.mark.parametrize("half", ["pytorch", "fabric"])
def test_the_classes_are_where_it_says(half: plugins.Half) -> None:
    """Each name leads to a class of the half that asks."""
    targets = {str(classes.of(half)) for classes in PLUGIN.strategies.values()}
    (loaded,) = [plugins.load(target).__name__ for target in targets]

    assert loaded == ("HPUDeepSpeedStrategy" if half == "pytorch" else "FabricHPUDeepSpeedStrategy")


def test_the_options_are_lightnings() -> None:
    """A stage means what it means with Lightning's own name."""
    registry = frameworks.current().pytorch("strategies").StrategyRegistry

    for name in _NAMES:
        expected = registry[f"deepspeed{name}"]["init_params"]
        assert dict(PLUGIN.strategies[f"hpu_deepspeed{name}"].options) == expected


@pytest.mark.parametrize("half", ["pytorch", "fabric"])
def test_a_strategy_registers_by_all_its_names(half: plugins.Half) -> None:
    """As the strategies of Lightning and lightning-habana do when a program asks them to."""
    registry = frameworks.current().fabric("strategies.registry")._StrategyRegistry()
    kind = plugins.load(str(PLUGIN.strategies["hpu_deepspeed"].of(half)))

    kind.register_strategies(registry)

    assert registry.available_strategies() == sorted(PLUGIN.strategies)
    assert {name: registry[name]["init_params"] for name in registry} == {
        name: dict(classes.options) for name, classes in PLUGIN.strategies.items()
    }
