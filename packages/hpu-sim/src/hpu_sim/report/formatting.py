"""Formatting of dtypes, shapes, operator names and numbers."""

from __future__ import annotations

import re
from typing import Final

#: Names of dtypes in C++ (``c10::ScalarType``) and in Python.
DTYPES: Final = {
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "ComplexHalf": "complex32",
    "Double": "float64",
    "Float": "float32",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Float8_e5m2": "float8_e5m2",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
}

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024

# Matches a dtype in "Float[64, 8]".
_DTYPE: Final = re.compile(r"(\w+)(?=\[)")
_BACKWARD: Final = re.compile(r"^(?:.*::)?(.*?)(?:Backward\d*)?$")


def format_dtypes(tensors: str) -> str:
    """Replace C++ dtype names by Python names.

    >>> format_dtypes("Float[64, 8], Long[64]")
    'float32[64, 8], int64[64]'
    """
    return _DTYPE.sub(lambda match: DTYPES.get(match[1], match[1]), tensors)


def first_dtype(tensors: str) -> str:
    """Return the dtype of the first tensor; empty if there is none.

    >>> first_dtype("Double[3], Float[4]")
    'float64'
    """
    name, bracket, _ = tensors.partition("[")
    return DTYPES.get(name, name) if bracket else ""


def backward_op_name(node: str) -> str:
    """Return the forward operator of an autograd node.

    >>> backward_op_name("AddmmBackward0"), backward_op_name("torch::autograd::AccumulateGrad")
    ('Addmm', 'AccumulateGrad')
    """
    match = _BACKWARD.match(node)
    return match[1] if match and match[1] else node


def op_name(name: str) -> str:
    """Return an operator name without the "aten" namespace.

    >>> op_name("aten::addmm"), op_name("torchvision::nms")
    ('addmm', 'torchvision::nms')
    """
    return name.removeprefix("aten::")


def changed_inputs(before: str, after: str) -> tuple[str, str]:
    """Return the inputs of an operator that differ between two calls.

    Args:
        before: Dtypes and shapes of all inputs, as :func:`format_dtypes` returns them.
        after: The same for the later call.

    >>> changed_inputs("float32[8], float32[4, 3]", "float32[8], float32[5, 3]")
    ('float32[4, 3]', 'float32[5, 3]')
    """
    old, new = _split_tensors(before), _split_tensors(after)
    if len(old) != len(new):
        return before, after
    changed = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    return ", ".join(pair[0] for pair in changed), ", ".join(pair[1] for pair in changed)


def _split_tensors(text: str) -> list[str]:
    return re.findall(r"\w+\[[^\]]*\]", text)


def format_bytes(size: float) -> str:
    """Return a number of bytes with a binary unit.

    >>> format_bytes(100), format_bytes(1536), format_bytes(96 << 30)
    ('100 B', '1.5 KiB', '96 GiB')
    """
    unit = 0
    while abs(size) >= _STEP and unit < len(_UNITS) - 1:
        size /= _STEP
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def format_int(number: int) -> str:
    """Return an integer with thousands separated by spaces.

    >>> format_int(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")
