"""How the device spells dtypes and shapes, and how a program does."""

from __future__ import annotations

import re
from typing import Final

#: Dtypes as C++ spells them and as torch's Python does.
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

# A dtype is followed by the sizes in brackets.
_DTYPE: Final = re.compile(r"(\w+)(?=\[)")
_BACKWARD: Final = re.compile(r"^(?:.*::)?(.*?)(?:Backward\d*)?$")


def format_dtypes(tensors: str) -> str:
    """Return the tensors of an event as a program would spell them.

    >>> spell("Float[64, 8], Long[64]")
    'float32[64, 8], int64[64]'
    """
    return _DTYPE.sub(lambda match: DTYPES.get(match[1], match[1]), tensors)


def first_dtype(tensors: str) -> str:
    """Return the dtype of an event's first tensor, or the empty text where there is none.

    >>> dtype_of("Double[3], Float[4]")
    'float64'
    """
    name, bracket, _ = tensors.partition("[")
    return DTYPES.get(name, name) if bracket else ""


def backward_op_name(node: str) -> str:
    """Return the operator whose backward pass a node of autograd's graph is.

    >>> operator_of_backward("AddmmBackward0"), operator_of_backward("torch::autograd::AccumulateGrad")
    ('Addmm', 'AccumulateGrad')
    """
    match = _BACKWARD.match(node)
    return match[1] if match and match[1] else node


def op_name(name: str) -> str:
    """Return an operator without the name of torch's own library.

    >>> operator("aten::addmm"), operator("torchvision::nms")
    ('addmm', 'torchvision::nms')
    """
    return name.removeprefix("aten::")


def changed_inputs(before: str, after: str) -> tuple[str, str]:
    """Return those of an operator's inputs that are not as they were.

    Args:
        before: Dtypes and shapes of all inputs, as :func:`spell` returns them.
        after: The same of another call.

    >>> difference("float32[8], float32[4, 3]", "float32[8], float32[5, 3]")
    ('float32[4, 3]', 'float32[5, 3]')
    """
    first, second = _tensors(before), _tensors(after)
    if len(first) != len(second):
        return before, after
    pairs = [(one, other) for one, other in zip(first, second, strict=True) if one != other]
    return ", ".join(one for one, _ in pairs), ", ".join(other for _, other in pairs)


def _tensors(text: str) -> list[str]:
    return re.findall(r"\w+\[[^\]]*\]", text)


def format_bytes(size: float) -> str:
    """Return a number of bytes as text.

    >>> in_bytes(100), in_bytes(1536), in_bytes(96 << 30)
    ('100 B', '1.5 KiB', '96 GiB')
    """
    unit = 0
    while abs(size) >= _STEP and unit < len(_UNITS) - 1:
        size /= _STEP
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def format_int(number: int) -> str:
    """Return a number with its thousands apart.

    >>> grouped(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")
