"""Rules of the bridge's memory pool, which strict mode and planners share.

The rules are those of the published bridge 1.19 with its default pool strategy 4 (``backend/synapse_helpers``). The
alignment is an attribute of the device that no published source states; 128 bytes is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Alignment of blocks, in bytes; assumed.
ALIGNMENT: Final = 128


@dataclass(frozen=True)
class MemoryRules:
    """Rules by which the memory in use grows.

    Attributes:
        alignment: Unit to which blocks are rounded up, in bytes.
        small_slab: Memory that is in use from the start, and from which blocks below two alignments come: they change
            counts, but not the memory in use.
        workspace: Workspace of recipes that is in use from the start. Recipes extend it by an amount that no published
            source states.
        max_slack: Bytes. A free chunk that exceeds a request by less than these is handed out whole if the request
            fills it to :attr:`min_filling`; all of it is then in use.
        min_filling: Share of a free chunk.
    """

    alignment: int = ALIGNMENT
    small_slab: int = 6144 * ALIGNMENT
    workspace: int = 4 << 20
    max_slack: int = 128 << 20
    min_filling: float = 0.9

    @property
    def reserved(self) -> int:
        """Memory in use before the first tensor."""
        return self.small_slab + self.workspace

    def in_use(self, size: int) -> int:
        """Return by how much a block of a size increases the memory in use, if no free chunk is handed out whole.

        A block is charged at its first use: an empty tensor is only a handle.

        >>> MemoryRules().in_use(100), MemoryRules().in_use(1000)
        (0, 1024)
        """
        return 0 if size < 2 * self.alignment else -(-size // self.alignment) * self.alignment


#: The rules of the simulated device in strict mode.
RULES: Final = MemoryRules()
