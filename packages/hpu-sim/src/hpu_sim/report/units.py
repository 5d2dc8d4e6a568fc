"""Numbers for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


def in_bytes(size: float) -> str:
    """Return a number of bytes as text.

    >>> in_bytes(100), in_bytes(1536), in_bytes(96 << 30)
    ('100 B', '1.5 KiB', '96 GiB')
    """
    unit = 0
    while abs(size) >= _STEP and unit < len(_UNITS) - 1:
        size /= _STEP
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def grouped(number: int) -> str:
    """Return a number with its thousands apart.

    >>> grouped(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")
