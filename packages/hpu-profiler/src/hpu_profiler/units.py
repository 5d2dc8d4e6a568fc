"""Numbers for people."""

from __future__ import annotations

from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_BINARY: Final = 1024
_DECIMAL: Final = 1000


def in_bytes(size: float) -> str:
    """Return a number of bytes as text.

    >>> in_bytes(100), in_bytes(-1536), in_bytes(96 << 30)
    ('100 B', '-1.5 KiB', '96 GiB')
    """
    unit = 0
    # The unit is chosen after rounding: 1023.96 is shown as 1024.
    while abs(round(size, 1)) >= _BINARY and unit < len(_BYTES) - 1:
        size /= _BINARY
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_BYTES[unit]}"


def in_time(microseconds: float) -> str:
    """Return a time as text.

    >>> in_time(0), in_time(0.4), in_time(1234.5), in_time(999_600)
    ('0 us', '0.4 us', '1.23 ms', '1 s')
    """
    # The unit is chosen after rounding: 999.96 is shown as 1000.
    if abs(round(microseconds, 1)) < _DECIMAL:
        return f"{microseconds:.1f}".removesuffix(".0") + " us"
    milliseconds = microseconds / _DECIMAL
    if abs(milliseconds) < _DECIMAL - 0.5:
        return f"{milliseconds:.3g} ms"
    return f"{milliseconds / _DECIMAL:.2f}".rstrip("0").rstrip(".") + " s"


def in_percent(share: float) -> str:
    """Return a share of 1 as text.

    >>> in_percent(0.1234), in_percent(1)
    ('12.3 %', '100 %')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
