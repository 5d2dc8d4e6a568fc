"""Operators of media pipes by name: ``fn.ImageDecoder(device="hpu", resize=[224, 224])(jpegs)``."""

from __future__ import annotations

from typing import Any, Final

from habana_frameworks.mediapipe.backend.nodes import Node, TensorNode
from habana_frameworks.mediapipe.operators import cpu_ops, decoder, hpu_ops, readers

_OPERATORS: Final = {each.name: each for module in (readers, cpu_ops, decoder, hpu_ops) for each in module.OPERATORS}
# Operators that are known, and that only pipes for COCO, U-Net, video and the like use.
_OTHERS: Final = """
    Add BasicCrop BitwiseAnd BitwiseOr BitwiseXor Cast Clamp CocoReader ColorSpaceConversion Concat Flip GatherND
    FrameRateReduction GaussianBlur GaussianFilter ImageRotate MediaExtCpuOp MediaExtHpuOp MemCpy Modulo Mult Neg
    Normalize Pad RandomBiasedCrop RandomNormal ReadImageDatasetFromDirBuffer ReadNumpyDatasetFromDir
    ReadVideoDatasetFromDir ReduceMax ReduceMin Resize SSDBBoxFlip SSDCropWindowGen SSDEncode SSDMetadata Slice
    SpatialConv Split Sub Transpose VideoDecoder Where Zoom
"""
_NOT_SIMULATED: Final = frozenset(_OTHERS.split())
_COMMON: Final = {
    "name": None,
    "device": None,
    "dtype": None,
    "num_outputs": None,
    "output_scale": 1.0,
    "output_zerop": 0.0,
}


class _Constructor:
    """Operator with parameters, which is called with inputs.

    Raises:
        NotImplementedError: The simulator lacks it.
        RuntimeError: It has no such parameter, or no variant for the device.
    """

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        if name in _NOT_SIMULATED:
            raise NotImplementedError(
                f"hpu-sim simulates the media pipes of ImageNet, and not {name} (COCO, U-Net, video, custom graphs)"
            )
        self._operator = operator = _OPERATORS[name]
        defaults = {**_COMMON, **operator.parameters}
        for parameter in parameters:
            if parameter not in defaults:
                raise RuntimeError(f"param {parameter} for operator {name} is invalid")
        self._parameters = {**defaults, **parameters}
        device = self._parameters["device"] or ("hpu" if "hpu" in operator.kinds else "cpu")
        if device not in operator.kinds:
            raise RuntimeError(f"operator {name} not implemented in {device}")
        self._device: str = device

    def __call__(self, *inputs: TensorNode, **named: TensorNode) -> Any:
        """Return the output, or a tuple of several.

        Raises:
            ValueError: An input is unknown or missing.
            RuntimeError: There are too many inputs.
        """
        operator = self._operator
        for name in named:
            if name not in operator.inputs:
                raise ValueError(f"input {name} for operator {operator.name} is invalid")
        if len(inputs) + len(named) > len(operator.inputs):
            raise RuntimeError(f"operator {operator.name} has {len(operator.inputs)} inputs, got {len(inputs)}")
        given = {**dict(zip(operator.inputs, inputs, strict=False)), **named}
        for name in operator.inputs[: operator.required]:
            if name not in given:
                raise ValueError(f"input {name} of operator {operator.name} is missing")
        node = Node(operator, self._device, self._parameters, given)
        count = int(self._parameters["num_outputs"] or operator.outputs)
        outputs = tuple(TensorNode(node, index) for index in range(count))
        return outputs if count > 1 else outputs[0]


def _constructor(name: str) -> Any:
    def construct(**parameters: Any) -> _Constructor:
        return _Constructor(name, parameters)

    construct.__name__ = name
    return construct


def __getattr__(name: str) -> Any:
    """Return the constructor of an operator."""
    if name in _OPERATORS or name in _NOT_SIMULATED:
        return _constructor(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
