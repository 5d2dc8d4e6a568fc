"""Text for times, sizes and shares."""

from __future__ import annotations

from typing import Final

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_KIBI: Final = 1024
_KILO: Final = 1000


def format_bytes(size: float) -> str:
    """Return a size as text.

    >>> format_bytes(100), format_bytes(-1536), format_bytes(96 << 30)
    ('100 B', '-1.5 KiB', '96 GiB')
    """
    unit = 0
    # The unit is chosen after rounding: 1023.96 rounds to 1024.
    while abs(round(size, 1)) >= _KIBI and unit < len(_BYTE_UNITS) - 1:
        size /= _KIBI
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {_BYTE_UNITS[unit]}"


def format_time(us: float) -> str:
    """Return a time in microseconds as text.

    >>> format_time(0), format_time(0.4), format_time(1234.5), format_time(999_600)
    ('0 us', '0.4 us', '1.23 ms', '1 s')
    """
    # The unit is chosen after rounding: 999.96 rounds to 1000.
    if abs(round(us, 1)) < _KILO:
        return f"{us:.1f}".removesuffix(".0") + " us"
    ms = us / _KILO
    if abs(ms) < _KILO - 0.5:
        return f"{ms:.3g} ms"
    return f"{ms / _KILO:.2f}".rstrip("0").rstrip(".") + " s"


def format_percent(fraction: float) -> str:
    """Return a fraction of 1 as text.

    >>> format_percent(0.1234), format_percent(1)
    ('12.3 %', '100 %')
    """
    return f"{100 * fraction:.1f}".removesuffix(".0") + " %"
