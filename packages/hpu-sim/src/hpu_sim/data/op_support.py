"""Operators that have a kernel on a card. A card runs others on the CPU.

The table is that of the bridge 1.19.0, from its published sources: the ATen operators for which it registers a kernel,
in eager and in lazy mode. The table of another release is not known, so it serves all of them.
"""
# hpu-doctor verify: missing-operator-runs-on-the-cpu

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

    Returns:
        Names without namespace and overload. In-place forms count as the operator itself.

    >>> "index_add" in device_operators(lazy=True), "digamma" in device_operators(lazy=True)
    (True, False)
    """
    mode = "lazy" if lazy else "eager"
    return _NOT_IN_TABLE | {row["op"].partition(".")[0].rstrip("_") for row in _rows() if row[mode] == "yes"}


def device_dtypes(generation: str) -> dict[str, frozenset[str]]:
    """Return the dtypes of the operators for which the table names any.

    Args:
        generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.

    Returns:
        For each operator, with its overload, the C++ names of its dtypes. An operator that is absent supports the
        dtypes that the graph compiler does, which are not known.

    >>> sorted(device_dtypes("GAUDI2")["_softmax"])
    ['BFloat16', 'Float', 'Half']
    """
    dtypes = {}
    for row in _rows():
        # "BFloat16 Float" for all generations, else "Gaudi: BFloat16 Float; Gaudi2: BFloat16 Float Half; ...".
        by_generation = dict(part.strip().split(": ") for part in row["dtypes"].split(";") if ": " in part)
        names = frozenset(by_generation.get(generation.capitalize(), row["dtypes"]).split())
        # Some rows name arguments in place of dtypes.
        if names & {"Float", "BFloat16"}:
            dtypes[row["op"]] = names
    return dtypes


def _rows() -> csv.DictReader[str]:
    text = resources.files("hpu_sim.data").joinpath(_TABLE).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())
