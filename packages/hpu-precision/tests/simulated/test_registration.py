"""`precision=` of a Trainer or Fabric means this package's plugins, with nothing of it imported."""

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hpu_core import HPUAccelerator, frameworks, register
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin

from .modules import Classifier, loader

_lightning = frameworks.current()


def _is_installed() -> bool:
    try:
        importlib.metadata.distribution("hpu-precision")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not _is_installed(), reason="Requires: hpu-precision installed, for its entry point"),
    # Lightning's advice to write the longer name.
    pytest.mark.filterwarnings("ignore:.* is supported for historical reasons"),
]

_has_scaler = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for a scaler")

_VALUES = [32, "32-true", pytest.param(16, marks=_has_scaler), "bf16", "bf16-mixed", "fp8"]


@pytest.fixture(autouse=True)
def registered() -> None:
    """Lightning knows Gaudi, as it does from the start where the simulator is asked for by its variable."""
    register()


@pytest.mark.parametrize("value", _VALUES)
def test_the_trainer_makes_the_plugin(value: int | str, trainer: Callable[..., Any]) -> None:
    """Each value gives the plugin that the constructor would have given."""
    run = trainer(precision=value, plugins=None)

    assert type(run.precision_plugin) is HPUPrecisionPlugin
    assert run.precision_plugin.precision == HPUPrecisionPlugin(value).precision


@pytest.mark.parametrize("value", _VALUES)
def test_fabric_makes_the_plugin(value: int | str) -> None:
    """Fabric's twin comes by the same values."""
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), devices=1, precision=value)

    assert type(fabric.strategy.precision) is FabricHPUPrecision
    assert fabric.strategy.precision.precision == FabricHPUPrecision(value).precision


def test_the_plugin_that_the_user_passes_is_used(trainer: Callable[..., Any]) -> None:
    """A plugin in `plugins=` stays."""
    plugin = HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"])

    assert trainer(plugin).precision_plugin is plugin


@pytest.mark.usefixtures("needs_autocast")
@pytest.mark.skipif(not hasattr(torch, "float8_e5m2"), reason="Requires: torch 2.1 for fp8")
def test_a_trainer_in_fp8_converts_and_trains(trainer: Callable[..., Any]) -> None:
    """The plugin of `precision="fp8"` is at hand to convert a module."""
    run = trainer(precision="fp8", plugins=None)
    module = Classifier()
    run.precision_plugin.convert_modules(module, replace_layers=True)
    run.fit(module, loader())

    assert module.types["fit"] == torch.bfloat16
