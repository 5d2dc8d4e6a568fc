"""Parser of memory sizes such as ``16GiB``, ``500MB`` and ``1073741824``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)", re.ASCII | re.IGNORECASE)


def parse_memory(amount: int | str, limit: int) -> int:
    """Return a memory size in bytes.

    Args:
        amount: Number of bytes, or a number with a unit of powers of 1000 (``kB``, ``MB``, ``GB``, ``TB``) or of 1024
            (``KiB``, ``MiB``, ``GiB``, ``TiB``) in any case.
        limit: Largest accepted size, in bytes.

    Raises:
        ValueError: If the text is not a memory size, or the size is below one byte or above the limit.

    >>> parse_memory("1.5KiB", 1 << 30)
    1536
    """
    match = _TEXT.fullmatch(str(amount))
    size = -1
    # bool is a subclass of int.
    if match is not None and match[2].lower() in _UNITS and not isinstance(amount, bool):
        size = int(Decimal(match[1]) * _UNITS[match[2].lower()])
    if not 1 <= size <= limit:
        raise ValueError(
            f"`memory` must be a number of bytes or text such as '16GiB' or '500MB', "
            f"from 1 to the card's {limit} bytes, got {amount!r}"
        )
    return size
