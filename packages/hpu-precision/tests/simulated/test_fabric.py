"""Fabric in each precision, with Lightning's own strategy for one device."""

from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn
from torch.nn import functional

from hpu_core import HPUAccelerator, bridge, frameworks
from hpu_precision import FabricHPUPrecision

from .modules import loader

_lightning = frameworks.current()
_has_half = pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision")
_has_scaler = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for a scaler")

_MIXED = ["bf16-mixed", pytest.param(16, marks=_has_scaler)]


class _Seeing(nn.Module):
    """Notes the types that go in and that its layer gives."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(4, 2)
        self.types: list[torch.dtype] = []

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layer(points)
        self.types = [points.dtype, scores.dtype]
        return scores


def _fabric(plugin: FabricHPUPrecision) -> Any:
    bridge.load()
    strategy = _lightning.fabric("strategies").SingleDeviceStrategy(torch.device("hpu"))
    return _lightning.fabric().Fabric(accelerator=HPUAccelerator(), strategy=strategy, plugins=[plugin])


def _train(plugin: FabricHPUPrecision, *, clip: bool = False) -> tuple[list[float], Any, _Seeing, torch.dtype]:
    """Train an epoch; return the losses, the optimizer, the module and the type of its last output."""
    fabric = _fabric(plugin)
    inner = _Seeing()
    module, optimizer = fabric.setup(inner, torch.optim.Adam(inner.parameters(), lr=0.05))
    losses = []
    for points, classes in fabric.setup_dataloaders(loader()):
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
    """The losses are those of 32 bit, to the digits of the lower precision."""
    mixed, *_ = _train(FabricHPUPrecision(value), clip=clip)
    full, *_ = _train(FabricHPUPrecision(32), clip=clip)

    assert mixed == pytest.approx(full, rel=0.05, abs=0.01)
    assert mixed != full


def test_inputs_keep_their_digits_and_outputs_are_float32() -> None:
    """Only the ops of the list are cast; what leaves the module is float32, for a loss outside of it."""
    *_, module, output = _train(FabricHPUPrecision("bf16-mixed"))

    assert (module.types, output) == ([torch.float32, torch.bfloat16], torch.float32)


@pytest.mark.parametrize("value", _MIXED)
def test_states_stay_float32(value: int | str) -> None:
    """The optimizer's states are float32."""
    _, optimizer, *_ = _train(FabricHPUPrecision(value))

    assert {entry.dtype for state in optimizer.state.values() for entry in state.values()} == {torch.float32}


@_has_half
def test_half_precision_converts_module_and_inputs() -> None:
    """Under "bf16-true", inputs and parameters are bf16, and what leaves the module is float32."""
    *_, module, output = _train(FabricHPUPrecision("bf16-true"))

    assert (module.types, module.layer.weight.dtype, output) == ([torch.bfloat16] * 2, torch.bfloat16, torch.float32)


@_has_half
@pytest.mark.parametrize(("value", "dtype"), [("bf16-mixed", torch.float32), ("bf16-true", torch.bfloat16)])
def test_a_module_is_made_in_the_type_of_its_parameters(value: str, dtype: torch.dtype) -> None:
    """`Fabric.init_module` makes parameters in bf16 where they are to be."""
    with _fabric(FabricHPUPrecision(value)).init_module():
        module = nn.Linear(4, 2)

    assert module.weight.dtype == dtype


@pytest.mark.parametrize(("value", "dtype"), [(32, torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_fabrics_autocast_casts(value: int | str, dtype: torch.dtype) -> None:
    """`fabric.autocast()` is the same context, for code outside of a module's forward."""
    data = torch.ones(4, 4, device="hpu")
    with _fabric(FabricHPUPrecision(value)).autocast():
        assert functional.linear(data, data).dtype == dtype


@_has_scaler
@pytest.mark.usefixtures("needs_autocast")
def test_the_scalers_state_can_be_saved() -> None:
    """The scaler's state goes out and comes in."""
    first = FabricHPUPrecision(16, scaler=torch.amp.GradScaler("hpu", init_scale=8.0))
    second = FabricHPUPrecision(16)
    second.load_state_dict(first.state_dict())

    assert second.state_dict()["scale"] == 8.0
