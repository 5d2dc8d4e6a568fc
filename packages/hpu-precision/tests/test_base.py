"""Tests of arguments that both plugins have."""

from typing import Any

import pytest
import torch

from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin


@pytest.mark.parametrize("plugin", [HPUPrecisionPlugin, FabricHPUPrecision])
def test_device_is_the_second_argument(plugin: type[HPUPrecisionPlugin] | type[FabricHPUPrecision]) -> None:
    """Lightning's plugins and lightning-habana's have the same signature."""
    assert plugin("32-true", "hpu").precision == plugin("32-true", device="hpu").precision == "32-true"


@pytest.mark.parametrize("plugin", [HPUPrecisionPlugin, FabricHPUPrecision])
def test_other_devices_are_rejected(plugin: type[HPUPrecisionPlugin] | type[FabricHPUPrecision]) -> None:
    with pytest.raises(ValueError, match=r"^`device` must be 'hpu', got 'cuda'$"):
        plugin("32-true", "cuda")


def test_fused_clipping_refuses_sharded_parameters() -> None:
    """The bridge's kernel would take the norm of one card's part."""
    parameter: Any = torch.nn.Parameter(torch.ones(2))
    parameter.device_mesh = "a mesh"
    plugin = HPUPrecisionPlugin("bf16-mixed", fused_clip_norm=True)

    with pytest.raises(ValueError, match="`fused_clip_norm` must be False with sharded parameters, got True"):
        plugin.clip_gradients(torch.optim.SGD([parameter]), 1.0)


def test_fused_clipping_is_the_trainers() -> None:
    with pytest.raises(ValueError, match="`fused_clip_norm` must be False with Fabric, which clips in its strategy"):
        FabricHPUPrecision("bf16-mixed", fused_clip_norm=True)
