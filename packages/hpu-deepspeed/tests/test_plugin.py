"""Tests of the entry point `hpu_core.plugins`."""

from typing import Any

import pytest

from hpu_core import frameworks, plugins
from hpu_deepspeed._plugin import PLUGIN

from .conftest import OnRanks

_SUFFIXES = ["", "_stage_1", "_stage_2", "_stage_2_offload", "_stage_3", "_stage_3_offload", "_stage_3_offload_nvme"]


def test_hpu_core_finds_the_entry_point() -> None:
    assert plugins.installed()["hpu-deepspeed"] is PLUGIN


def test_options_equal_those_of_lightnings_names() -> None:
    registry = frameworks.current().pytorch("strategies").StrategyRegistry

    for suffix in _SUFFIXES:
        expected = registry[f"deepspeed{suffix}"]["init_params"]
        assert dict(PLUGIN.strategies[f"hpu_deepspeed{suffix}"].options) == expected


def _replaced(api: plugins.Api) -> tuple[Any, ...]:
    """Construct Lightning's strategy and its replacement, and return what the arguments became."""
    framework = frameworks.current()
    package = framework.pytorch("strategies") if api == "pytorch" else framework.fabric("strategies")
    theirs = package.DeepSpeedStrategy(
        stage=3, offload_optimizer=True, reduce_bucket_size=1234, hysteresis=5, load_full_weights=True
    )
    ours = plugins.load(str(PLUGIN.strategies[PLUGIN.replacements["DeepSpeedStrategy"]].of(api))).from_lightning(theirs)
    zero = ours.config["zero_optimization"]
    device = zero["offload_optimizer"]["device"]
    return zero["stage"], device, zero["reduce_bucket_size"], ours.hysteresis, ours.load_full_weights


@pytest.mark.parametrize("api", ["pytorch", "fabric"])
def test_replacement_keeps_the_arguments_of_lightnings_strategy(api: plugins.Api, on_ranks: OnRanks) -> None:
    assert on_ranks(_replaced, api, count=1) == [(3, "cpu", 1234, 5, True)]
