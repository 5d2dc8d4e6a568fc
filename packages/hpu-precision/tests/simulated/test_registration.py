"""Tests that `precision=` of the Trainer and Fabric selects this package's plugins."""

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hpu_core import HPUAccelerator, frameworks, register
from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin

_lightning = frameworks.current()


def _is_installed() -> bool:
    try:
        importlib.metadata.distribution("hpu-precision")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(not _is_installed(), reason="Requires: hpu-precision installed, for its entry point"),
    # Lightning recommends the new name of the precision.
    pytest.mark.filterwarnings("ignore:.* is supported for historical reasons"),
]

_has_scaler = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for torch.amp.GradScaler"
)

_VALUES = [32, "32-true", pytest.param(16, marks=_has_scaler), "bf16", "bf16-mixed", "fp8"]


@pytest.fixture(autouse=True)
def registered() -> None:
    """Register Gaudi with Lightning."""
    register()


@pytest.mark.parametrize("value", _VALUES)
def test_trainer_creates_the_plugin(value: int | str, trainer: Callable[..., Any]) -> None:
    run = trainer(precision=value, plugins=None)

    assert type(run.precision_plugin) is HPUPrecisionPlugin
    assert run.precision_plugin.precision == HPUPrecisionPlugin(value).precision


@pytest.mark.parametrize("value", _VALUES)
def test_fabric_creates_the_plugin(value: int | str) -> None:
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), devices=1, precision=value)

    assert type(fabric.strategy.precision) is FabricHPUPrecision
    assert fabric.strategy.precision.precision == FabricHPUPrecision(value).precision
