"""Tests of the precision plugins."""

from typing import Any

import pytest
import torch

from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

_CLASSES = [HPUDeepSpeedPrecisionPlugin, FabricHPUDeepSpeedPrecision]


@pytest.mark.parametrize("plugin", _CLASSES)
@pytest.mark.parametrize(
    ("given", "canonical"), [("bf16-mixed", "bf16-mixed"), ("bf16", "bf16-mixed"), (32, "32-true"), ("16", "16-mixed")]
)
def test_aliases_are_normalized_as_in_the_trainer(plugin: Any, given: Any, canonical: str) -> None:
    assert plugin(given).precision == canonical


@pytest.mark.parametrize("plugin", _CLASSES)
def test_unsupported_precision_is_rejected(plugin: Any) -> None:
    """The error lists the supported precisions."""
    with pytest.raises(ValueError, match=r"`precision` must be '32-true', .* or 'fp8' with DeepSpeed, got 'bf8'$"):
        plugin("bf8")


@pytest.mark.parametrize("plugin", _CLASSES)
def test_only_fp8_converts(plugin: Any) -> None:
    with pytest.raises(ValueError, match="`convert_modules` needs precision='fp8', got a plugin with 'bf16-mixed'"):
        plugin("bf16-mixed").convert_modules(torch.nn.Linear(16, 16))


def test_other_devices_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"^`device` must be 'hpu', got 'cuda'$"):
        HPUDeepSpeedPrecisionPlugin("bf16-mixed", "cuda")
