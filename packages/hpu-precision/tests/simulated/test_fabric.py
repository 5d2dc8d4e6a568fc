"""Tests of Fabric's plugin with Lightning's own strategy for one device."""

from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn
from torch.nn import functional

from hpu_core import HPUAccelerator, bridge, frameworks
from hpu_precision import FabricHPUPrecision
from hpu_testing.modules import make_loader

_lightning = frameworks.current()
_has_half = pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision")
_has_scaler = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for torch.amp.GradScaler"
)

_MIXED = ["bf16-mixed", pytest.param(16, marks=_has_scaler)]


class _RecordingModule(nn.Module):
    """Module that records the dtypes of its input and of its layer's output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(4, 2)
        self.dtypes: list[torch.dtype] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(points)
        self.dtypes = [points.dtype, scores.dtype]
        return scores


def _fabric(plugin: FabricHPUPrecision) -> Any:
    bridge.load()
    strategy = _lightning.fabric("strategies").SingleDeviceStrategy(torch.device("hpu"))
    return _lightning.fabric().Fabric(accelerator=HPUAccelerator(), strategy=strategy, plugins=[plugin])


def _train(plugin: FabricHPUPrecision, *, clip: bool = False) -> tuple[list[float], Any, _RecordingModule, torch.dtype]:
    """Train for an epoch and return the losses, the optimizer, the module and the dtype of its last output."""
    fabric = _fabric(plugin)
    inner = _RecordingModule()
    module, optimizer = fabric.setup(inner, torch.optim.Adam(inner.parameters(), lr=0.05))
    losses = []
    for points, classes in fabric.setup_dataloaders(make_loader()):
        optimizer.zero_grad()
        scores = module(points)
        loss = functional.cross_entropy(scores, classes)
        fabric.backward(loss)
        if clip:
            fabric.clip_gradients(module, optimizer, max_norm=0.01)
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer, inner, scores.dtype


@pytest.mark.parametrize("value", _MIXED)
@pytest.mark.parametrize("clip", [False, True], ids=["plain", "clipping"])
def test_mixed_precision_trains_like_32_bit(value: int | str, clip: bool) -> None:
    """The losses are close, and not equal."""
    mixed, *_ = _train(FabricHPUPrecision(value), clip=clip)
    full, *_ = _train(FabricHPUPrecision(32), clip=clip)

    assert mixed == pytest.approx(full, rel=0.05, abs=0.01)
    assert mixed != full


def test_inputs_are_not_converted_and_outputs_are_float32() -> None:
    """A loss outside the module is computed in float32."""
    *_, module, output = _train(FabricHPUPrecision("bf16-mixed"))

    assert (module.dtypes, output) == ([torch.float32, torch.bfloat16], torch.float32)


@_has_half
def test_half_precision_converts_module_and_inputs() -> None:
    """Outputs are converted to float32."""
    *_, module, output = _train(FabricHPUPrecision("bf16-true"))

    assert (module.dtypes, module.layer.weight.dtype, output) == ([torch.bfloat16] * 2, torch.bfloat16, torch.float32)


@pytest.mark.parametrize(("value", "dtype"), [(32, torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_fabric_autocast_applies_the_precision(value: int | str, dtype: torch.dtype) -> None:
    data = torch.ones(4, 4, device="hpu")
    with _fabric(FabricHPUPrecision(value)).autocast():
        assert functional.linear(data, data).dtype == dtype


@_has_scaler
@pytest.mark.usefixtures("needs_autocast")
def test_state_of_the_scaler_can_be_loaded() -> None:
    first = FabricHPUPrecision(16, scaler=torch.amp.GradScaler("hpu", init_scale=8.0))
    second = FabricHPUPrecision(16)
    second.load_state_dict(first.state_dict())

    assert second.state_dict()["scale"] == 8.0
