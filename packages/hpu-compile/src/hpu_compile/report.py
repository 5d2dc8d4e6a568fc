"""What torch.compile made of the regions of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CompileReport", "GraphBreak", "Mode", "Recompilation", "RegionReport"]

Mode = Literal["training", "evaluation"]
"""Whether a graph has a backward pass: "training" with gradients, "evaluation" without."""


@dataclass(frozen=True)
class GraphBreak:
    """Line at which a graph ends, because torch.compile cannot trace it.

    Attributes:
        file: The file.
        line: The line.
        reason: Why, in dynamo's words.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Recompilation:
    """Graph that was compiled though there was one for the same code.

    Attributes:
        module: Name of the module.
        mode: "training" or "evaluation".
        guard: The assumption of the former graph that did not hold.
        line: "file:line" of the module's call.
        step: Training step in which it happened; None outside of a Trainer.
    """

    module: str
    mode: Mode
    guard: str
    line: str
    step: int | None = None

    def __str__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        return f"`{self.module or 'the model'}`, {self.mode}{step}: {self.guard} ({self.line})"


@dataclass
class RegionReport:
    """Graphs of a region.

    Attributes:
        name: The region, `str(Region)`.
        graphs: Number of graphs by mode. On a card, one of training is two recipes, forward and backward.
        breaks: Lines at which graphs end early.
        recompilations: Graphs beyond the first.
        seconds: Time spent compiling.
    """

    name: str
    graphs: Counter[str] = field(default_factory=Counter)
    breaks: list[GraphBreak] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class CompileReport:
    """Graphs of all regions.

    Attributes:
        regions: A report for each region.
        steady_after: Number of training steps until the last compilation; None outside of a Trainer, or if nothing
            was compiled in training.
        simulated: Whether the device is the simulator's.
    """

    regions: tuple[RegionReport, ...]
    steady_after: int | None = None
    simulated: bool = False

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return sum(sum(region.graphs.values()) for region in self.regions)

    @property
    def seconds(self) -> float:
        """Time spent compiling."""
        return sum(region.seconds for region in self.regions)

    def __str__(self) -> str:
        steady = "" if self.steady_after is None else f", steady after {self.steady_after} steps"
        simulated = " (simulated)" if self.simulated else ""
        lines = [f"torch.compile: {self.graphs} graphs in {self.seconds:.1f} s{steady}{simulated}"]
        for region in self.regions:
            modes = ", ".join(f"{count} of {mode}" for mode, count in sorted(region.graphs.items(), reverse=True))
            lines.append(f"  {region.name}: {modes or 'no graphs'}; {region.seconds:.1f} s")
            lines += [f"    compiled again: {each}" for each in region.recompilations]
            lines += [f"    graph break: {each}" for each in region.breaks]
        return "\n".join(lines)
