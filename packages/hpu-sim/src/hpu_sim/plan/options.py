"""Options of a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Options of a plan.

    Attributes:
        devices: Ranks per box.
        nodes: Number of boxes.
        strategy: Strategy that replaces the program's; None for its own.
        precision: Precision that replaces the program's; None for its own.
        batch_size: Batch size per rank that replaces the program's; None for its own.
        checkpoint: Number of repeated blocks whose activations are recomputed in the backward pass.
        compiled: Whether to plan the program as compiled by hpu_backend.
    """

    devices: int = 1
    nodes: int = 1
    strategy: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    checkpoint: int = 0
    compiled: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.devices * self.nodes

    @property
    def changes(self) -> str:
        """What is changed of the program, beside its strategy."""
        changes = {
            "precision": self.precision,
            "batch": self.batch_size,
            "recomputed blocks": self.checkpoint or None,
        }
        return ", ".join(f"{name} {value}" for name, value in changes.items() if value is not None)
