"""Formatting of dtypes, shapes, operator names and numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
# Matches a tensor, without its strides and without arguments such as "dim=[0]".
_TENSOR: Final = re.compile(r"(?:^|, )(\w+\[[^\]]*\])")
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


def have_same_shapes(before: str, after: str) -> bool:
    """Return whether the tensors of two calls have the same dtypes and shapes.

    >>> have_same_shapes("Float[8, 2] stride[1, 8], dim=[0]", "Float[8, 2], dim=[1]")
    True
    """
    return _TENSOR.findall(before) == _TENSOR.findall(after)


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


def format_seconds(seconds: float) -> str:
    """Return a duration with a unit.

    >>> format_seconds(0.00123), format_seconds(1.5)
    ('1.23 ms', '1.5 s')
    >>> format_seconds(10_000), format_seconds(1_000_000)
    ('2.78 h', '11.6 days')
    """
    for limit, scale, unit in (
        (172_800.0, 1 / 86_400, "days"),
        (7_200.0, 1 / 3600, "h"),
        (1.0, 1.0, "s"),
        (1e-3, 1e3, "ms"),
    ):
        if seconds >= limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def format_rates(slow_and_fast: tuple[float, float]) -> str:
    """Return the range of a number per second.

    >>> format_rates((1234.5, 20000.0))
    '1 230 to 20 000'
    """
    return " to ".join(_round(each) for each in slow_and_fast)


def _round(value: float) -> str:
    """Return a number with three digits."""
    threshold = 100
    return format_int(int(float(f"{value:.3g}"))) if value >= threshold else f"{value:.3g}"


def format_shares(slow_and_fast: tuple[float, float]) -> str:
    """Return the range of a share.

    >>> format_shares((0.301, 0.42))
    '30 % to 42 %'
    """
    return " to ".join(f"{100 * each:.2g} %" for each in slow_and_fast)


def format_range(fast: float, slow: float) -> str:
    """Return the range of a predicted time.

    >>> format_range(0.0012, 0.002)
    '1.2 ms to 2 ms'
    """
    return f"{format_seconds(fast)} to {format_seconds(slow)}"


def format_bounds(shares: Mapping[str, float], least: float = 0.05) -> str:
    """Return what limits a step, without shares below the least.

    >>> format_bounds({"memory": 0.62, "host": 0.36, "network": 0.02})
    'memory (62%), host (36%)'
    """
    return ", ".join(f"{name} ({share:.0%})" for name, share in shares.items() if share >= least) or "nothing"


def show_location(location: str) -> str:
    """Return ``file:line`` relative to the current folder."""
    path, _, line = location.rpartition(":")
    if not path:
        return location
    shown = Path(path)
    return f"{shown.relative_to(Path.cwd()) if shown.is_relative_to(Path.cwd()) else shown}:{line}"


def align(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust, indent: int = 2) -> list[str]:
    """Return the rows of a table as lines with aligned columns.

    Args:
        rows: Cells of each row.
        justify: ``str.ljust`` or ``str.rjust``.
        indent: Spaces before each line.

    >>> align([("a", "1"), ("bc", "20")], str.rjust)
    ['   a   1', '  bc  20']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [f"{' ' * indent}{'  '.join(map(justify, row, widths))}".rstrip() for row in rows]
