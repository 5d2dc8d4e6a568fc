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

# A dtype is followed by the sizes in brackets.
_DTYPE: Final = re.compile(r"(\w+)(?=\[)")
_BACKWARD: Final = re.compile(r"^(?:.*::)?(.*?)(?:Backward\d*)?$")


def spell(tensors: str) -> str:
    """Return the tensors of an event as a program would spell them.

    >>> spell("Float[64, 8], Long[64]")
    'float32[64, 8], int64[64]'
    """
    return _DTYPE.sub(lambda match: DTYPES.get(match[1], match[1]), tensors)


def dtype_of(tensors: str) -> str:
    """Return the dtype of an event's first tensor, or the empty text where there is none.

    >>> dtype_of("Double[3], Float[4]")
    'float64'
    """
    name, bracket, _ = tensors.partition("[")
    return DTYPES.get(name, name) if bracket else ""


def operator_of_backward(node: str) -> str:
    """Return the operator whose backward pass a node of autograd's graph is.

    >>> operator_of_backward("AddmmBackward0"), operator_of_backward("torch::autograd::AccumulateGrad")
    ('Addmm', 'AccumulateGrad')
    """
    match = _BACKWARD.match(node)
    return match[1] if match and match[1] else node


def operator(name: str) -> str:
    """Return an operator without the name of torch's own library.

    >>> operator("aten::addmm"), operator("torchvision::nms")
    ('addmm', 'torchvision::nms')
    """
    return name.removeprefix("aten::")


def difference(before: str, after: str) -> tuple[str, str]:
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
