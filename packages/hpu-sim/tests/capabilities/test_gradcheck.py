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

# Modules, and the shapes of the inputs to differentiate by.
_MODULES: Final[dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...]]]] = {
    # Linear maps
    "Linear": (lambda: nn.Linear(3, 2), ((2, 3),)),
    "Bilinear": (lambda: nn.Bilinear(2, 3, 2), ((2, 2), (2, 3))),
    "Conv1d": (lambda: nn.Conv1d(2, 2, 2), ((1, 2, 3),)),
    "Conv2d": (lambda: nn.Conv2d(2, 2, 2), ((1, 2, 3, 3),)),
    "Conv3d": (lambda: nn.Conv3d(1, 1, 2), ((1, 1, 2, 2, 2),)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 1, 2), ((1, 2, 3),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 2, 2), ((1, 2, 3, 3),)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(1, 1, 2), ((1, 1, 2, 2, 2),)),
    "Fold": (lambda: nn.Fold((3, 3), 2), ((1, 4, 4),)),
    "Unfold": (lambda: nn.Unfold(2), ((1, 1, 3, 3),)),
    # Norms
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), ((4, 3),)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), ((2, 2, 2, 2),)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(1), ((2, 1, 2, 2, 2),)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2, affine=True), ((2, 2, 3),)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(1), ((2, 1, 2, 2),)),
    "GroupNorm": (lambda: nn.GroupNorm(1, 2), ((2, 2, 3),)),
    "LayerNorm": (lambda: nn.LayerNorm(3), ((2, 3),)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), ((1, 3, 2),)),
    # Activations
    "CELU": (nn.CELU, ((2, 3),)),
    "ELU": (nn.ELU, ((2, 3),)),
    "GELU": (nn.GELU, ((2, 3),)),
    "GELU by tanh": (lambda: nn.GELU("tanh"), ((2, 3),)),
    "GLU": (nn.GLU, ((2, 4),)),
    "Hardshrink": (nn.Hardshrink, ((2, 3),)),
    "Hardsigmoid": (nn.Hardsigmoid, ((2, 3),)),
    "Hardswish": (nn.Hardswish, ((2, 3),)),
    "Hardtanh": (nn.Hardtanh, ((2, 3),)),
    "LeakyReLU": (nn.LeakyReLU, ((2, 3),)),
    "LogSigmoid": (nn.LogSigmoid, ((2, 3),)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), ((2, 3),)),
    "Mish": (nn.Mish, ((2, 3),)),
    "PReLU": (nn.PReLU, ((2, 3),)),
    "ReLU": (nn.ReLU, ((2, 3),)),
    "ReLU6": (nn.ReLU6, ((2, 3),)),
    "SELU": (nn.SELU, ((2, 3),)),
    "SiLU": (nn.SiLU, ((2, 3),)),
    "Sigmoid": (nn.Sigmoid, ((2, 3),)),
    "Softmax": (lambda: nn.Softmax(-1), ((2, 3),)),
    "Softmin": (lambda: nn.Softmin(-1), ((2, 3),)),
    "Softplus": (nn.Softplus, ((2, 3),)),
    "Softshrink": (nn.Softshrink, ((2, 3),)),
    "Softsign": (nn.Softsign, ((2, 3),)),
    "Tanh": (nn.Tanh, ((2, 3),)),
    "Tanhshrink": (nn.Tanhshrink, ((2, 3),)),
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), ((2, 3),)),
    # Pooling, padding, resizing
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(2), ((1, 1, 4),)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), ((1, 1, 3, 3),)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), ((1, 1, 3, 3),)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), ((1, 1, 4),)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), ((1, 1, 4, 4),)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), ((1, 1, 2, 2, 2),)),
    "LPPool1d": (lambda: nn.LPPool1d(2, 2), ((1, 1, 4),)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), ((1, 1, 4),)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), ((1, 1, 4, 4),)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), ((1, 1, 2, 2, 2),)),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(1, 0.5), ((1, 1, 2, 2),)),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(1), ((1, 1, 3),)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(1), ((1, 1, 2, 2),)),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(1), ((1, 1, 2, 2),)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), ((1, 4, 1, 2),)),
    "Upsample to the nearest": (lambda: nn.Upsample(scale_factor=2), ((1, 1, 2, 2),)),
    "Upsample bilinearly": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), ((1, 1, 2, 2),)),
    "Flatten": (nn.Flatten, ((2, 1, 3),)),
    # Distances and losses
    "CosineSimilarity": (nn.CosineSimilarity, ((2, 3), (2, 3))),
    "PairwiseDistance": (nn.PairwiseDistance, ((2, 3), (2, 3))),
    "HuberLoss": (nn.HuberLoss, ((2, 3), (2, 3))),
    "L1Loss": (nn.L1Loss, ((2, 3), (2, 3))),
    "MSELoss": (nn.MSELoss, ((2, 3), (2, 3))),
    "SmoothL1Loss": (nn.SmoothL1Loss, ((2, 3), (2, 3))),
    "TripletMarginLoss": (nn.TripletMarginLoss, ((2, 3), (2, 3), (2, 3))),
    # Sequences
    "GRU": (lambda: nn.GRU(2, 2), ((2, 1, 2),)),
    "LSTM": (lambda: nn.LSTM(2, 2), ((2, 1, 2),)),
    "RNN": (lambda: nn.RNN(2, 2), ((2, 1, 2),)),
    "GRUCell": (lambda: nn.GRUCell(2, 2), ((1, 2), (1, 2))),
    "RNNCell": (lambda: nn.RNNCell(2, 2), ((1, 2), (1, 2))),
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
