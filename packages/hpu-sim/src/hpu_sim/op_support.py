"""Operators that have a kernel on a card. A card runs others on the CPU.

The table is that of the bridge 1.19.0, from its published sources: the ATen operators for which it registers a kernel,
in eager and in lazy mode. The table of another release is not known, so it serves all of them.
"""

from __future__ import annotations

import csv
from importlib import resources
from typing import Final

_TABLE: Final = "op_support_1_19.csv"

# Not on a card, or newer than the table: torch's attention and its choice for the CPU, which a card replaces by its
# own, and fused optimizers, for which torch lists hpu from 2.9 on.
_NOT_IN_TABLE: Final = frozenset(
    {
        "_fused_adagrad",
        "_fused_adam",
        "_fused_adamw",
        "_fused_sdp_choice",
        "_fused_sgd",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    }
)


def device_operators(*, lazy: bool) -> frozenset[str]:
    """Return the operators that a card does not run on the CPU.

    Args:
        lazy: Whether the device is in lazy mode.

    Returns:
        Names without namespace and overload. In-place forms count as the operator itself.

    >>> "index_add" in device_operators(lazy=True), "digamma" in device_operators(lazy=True)
    (True, False)
    """
    text = resources.files("hpu_sim").joinpath(_TABLE).read_text(encoding="utf-8")
    mode = "lazy" if lazy else "eager"
    rows = csv.DictReader(text.splitlines())
    return _NOT_IN_TABLE | {row["op"].partition(".")[0].rstrip("_") for row in rows if row[mode] == "yes"}
