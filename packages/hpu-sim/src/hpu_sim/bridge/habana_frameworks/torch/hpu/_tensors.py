"""Legacy tensor types: ``torch.hpu.FloatTensor(2, 3)`` creates a tensor on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Tensor",
]


class _TensorType(type):
    """Metaclass of types whose instances are the hpu tensors of one dtype."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "hpu" and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> Any:
        """Return an uninitialized tensor of the given sizes, or a tensor of the given data."""
        if all(isinstance(arg, int) for arg in args):
            return torch.empty(args or (0,), dtype=cls.dtype, device="hpu")
        (data,) = args
        return torch.tensor(data, dtype=cls.dtype, device="hpu")


def _tensor_type(name: str, dtype: torch.dtype) -> _TensorType:
    return _TensorType(name, (), {"dtype": dtype, "__module__": __name__})


BFloat16Tensor = _tensor_type("BFloat16Tensor", torch.bfloat16)
BoolTensor = _tensor_type("BoolTensor", torch.bool)
ByteTensor = _tensor_type("ByteTensor", torch.uint8)
CharTensor = _tensor_type("CharTensor", torch.int8)
DoubleTensor = _tensor_type("DoubleTensor", torch.float64)
FloatTensor = _tensor_type("FloatTensor", torch.float32)
HalfTensor = _tensor_type("HalfTensor", torch.float16)
IntTensor = _tensor_type("IntTensor", torch.int32)
LongTensor = _tensor_type("LongTensor", torch.int64)
ShortTensor = _tensor_type("ShortTensor", torch.int16)
