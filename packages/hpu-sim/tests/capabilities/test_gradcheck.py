"""Gradients of torch's modules, compared with finite differences in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = tuple[int, ...]

_ACTIVATIONS: Final = (
    "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 SELU SiLU "
    "Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink"
)
_DISTANCES: Final = "CosineSimilarity PairwiseDistance HuberLoss L1Loss MSELoss SmoothL1Loss"
# Modules, and the shapes of the inputs to differentiate by.
_MODULES: Final[dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...]]]] = {
    **{name: (getattr(nn, name), ((2, 3),)) for name in _ACTIVATIONS.split()},
    **{name: (getattr(nn, name), ((2, 3), (2, 3))) for name in _DISTANCES.split()},
    # Linear maps
    "Linear": (lambda: nn.Linear(3, 2), ((2, 3),)),
    "Bilinear": (lambda: nn.Bilinear(2, 3, 2), ((2, 2), (2, 3))),
    "Conv2d": (lambda: nn.Conv2d(2, 2, 2), ((1, 2, 3, 3),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 2, 2), ((1, 2, 3, 3),)),
    "Fold": (lambda: nn.Fold((3, 3), 2), ((1, 4, 4),)),
    "Unfold": (lambda: nn.Unfold(2), ((1, 1, 3, 3),)),
    # Norms
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), ((2, 2, 2, 2),)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2, affine=True), ((2, 2, 3),)),
    "GroupNorm": (lambda: nn.GroupNorm(1, 2), ((2, 2, 3),)),
    "LayerNorm": (lambda: nn.LayerNorm(3), ((2, 3),)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), ((1, 3, 2),)),
    # Activations with arguments
    "GLU": (nn.GLU, ((2, 4),)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), ((2, 3),)),
    "Softmax": (lambda: nn.Softmax(-1), ((2, 3),)),
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), ((2, 3),)),
    # Pooling, padding, resizing
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), ((1, 1, 3, 3),)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), ((1, 1, 3, 3),)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), ((1, 1, 4, 4),)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), ((1, 1, 4, 4),)),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(1, 0.5), ((1, 1, 2, 2),)),
    "Upsample bilinearly": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), ((1, 1, 2, 2),)),
    "TripletMarginLoss": (nn.TripletMarginLoss, ((2, 3), (2, 3), (2, 3))),
    # Sequences
    "GRU": (lambda: nn.GRU(2, 2), ((2, 1, 2),)),
    "LSTM": (lambda: nn.LSTM(2, 2), ((2, 1, 2),)),
    "RNN": (lambda: nn.RNN(2, 2), ((2, 1, 2),)),
    "GRUCell": (lambda: nn.GRUCell(2, 2), ((1, 2), (1, 2))),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(2, 1), ((2, 1, 2), (2, 1, 2), (2, 1, 2))),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(2, 1, 2, dropout=0.0), ((2, 1, 2),)),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(2, 1, 2, dropout=0.0), ((1, 1, 2), (2, 1, 2))),
}


@pytest.mark.parametrize("name", _MODULES)
def test_gradients_are_correct(name: str) -> None:
    """Those of all inputs and all parameters are checked together."""
    make, shapes = _MODULES[name]
    torch.manual_seed(0)
    module = make().double().to("hpu")
    inputs = [torch.randn(shape, dtype=torch.float64, device="hpu", requires_grad=True) for shape in shapes]
    parameters = dict(module.named_parameters())

    def call(*values: Tensor) -> Tensor:
        replaced = dict(zip(parameters, values[len(inputs) :], strict=True))
        output = functional_call(module, replaced, values[: len(inputs)])
        # Recurrent modules and attention return several tensors.
        first: Tensor = output[0] if isinstance(output, tuple) else output
        return first

    assert torch.autograd.gradcheck(call, (*inputs, *parameters.values()))
