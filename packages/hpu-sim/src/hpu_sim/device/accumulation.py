"""Rules by which the matrix engine of a generation sums products, for ``HPU_SIM_NUMERICS=1``.

The rules are those of Intel's published reference of the engine (HabanaAI/Intel_Gaudi3_Software at e6cef1c,
``mme/mme_reference/chip_fma/gaudi{,2,3}_fma.cpp``). It adds as many products as its tree of adders is wide, and adds
that sum to one in float32. A float32 of GAUDI2 is two numbers of 12 bits, whose four products are summed: exactly, as
those of the other types. Two things are simpler here: the tree of GAUDI2 has fewer bits than float64, and no known
source states how many; and the sum of a tree of GAUDI3 is truncated once, to float32.
"""

from __future__ import annotations

from typing import Final

#: Products that are added exactly, sums in float32 that take turns (added pairwise at the end), and whether rounding is
#: toward zero rather than to nearest, by generation and dtype.
RULES: Final = {
    "GAUDI": {"bfloat16": (1, 4, False), "float32": (1, 4, False)},
    "GAUDI2": {
        "float8": (16, 1, False),
        "bfloat16": (8, 1, False),
        "float16": (8, 1, False),
        "float32": (2, 1, False),
    },
    "GAUDI3": {"float8": (8, 1, True), "bfloat16": (8, 1, True), "float16": (2, 1, True), "float32": (1, 1, True)},
}
