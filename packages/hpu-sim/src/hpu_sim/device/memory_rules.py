"""Rules of the bridge's memory pool, by which strict mode counts the memory in use. Fragments are not simulated.

The rules are those of the published bridge 1.19 with its default pool strategy 4 (``backend/synapse_helpers``), which
reads the alignment from the device. A block is charged at its first use: an empty tensor is only a handle.
"""

from __future__ import annotations

from typing import Final

#: Unit to which blocks are rounded up, in bytes (``hal.h`` of HabanaAI/Intel_Gaudi3_Software at e6cef1c).
ALIGNMENT: Final = {"GAUDI": 128, "GAUDI2": 128, "GAUDI3": 256}
#: Workspace of recipes that is in use from the start. Recipes extend it by an amount that no published source states.
WORKSPACE: Final = 4 << 20


def small_slab(generation: str) -> int:
    """Return the memory that is in use from the start, and from which blocks below two alignments come.

    They change counts, but not the memory in use.
    """
    return 6144 * ALIGNMENT[generation]
