"""Data model of a plan, and its JSON encoding. Everything in it is predicted and not measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hpu_sim.common.encoding import SCHEMA_VERSION
from hpu_sim.prediction.hardware import Verdict  # noqa: TC001 - dataclasses have annotations
from hpu_sim.prediction.recording import PREDICTED, Program, TensorInfo
from hpu_sim.prediction.step import Step  # noqa: TC001 - as above


@dataclass(frozen=True)
class ModuleMemory:
    """Memory of a module at the peak, or of repeated modules together.

    Attributes:
        name: Qualified name, with ``*`` for the number of a repeated module.
        count: Number of modules.
        bytes: Bytes of all of them.
        by_category: Bytes by category.
    """

    name: str
    count: int
    bytes: int
    by_category: dict[str, int]


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of a rank's device.

    Attributes:
        peak_bytes: Highest memory of the setup and the planned steps.
        peak_phase: Part of the step with the peak.
        at_peak: Bytes by category at the peak.
        modules: Memory of modules at the peak, largest first.
    """

    peak_bytes: int
    peak_phase: str
    at_peak: dict[str, int]
    modules: tuple[ModuleMemory, ...] = ()


@dataclass(frozen=True)
class RatePlan:
    """Speed of the whole job. Each pair is that of the slow and of the fast end of a step's range.

    Attributes:
        samples: Samples of a step of the optimizer on all ranks; 0 if they are not known.
        tokens: Tokens of these samples; 0 if they have none.
        samples_per_second: Samples.
        tokens_per_second: Tokens.
        mfu: Share of the stated peak of the matrix engines that the model's own operations need, without recomputation.
        price: Price of a card hour; 0 if none is given.
        cost: Price of a million samples.
    """

    samples: int
    tokens: int
    samples_per_second: tuple[float, float]
    tokens_per_second: tuple[float, float]
    mfu: tuple[float, float]
    price: float = 0.0
    cost: tuple[float, float] = (0.0, 0.0)


@dataclass(kw_only=True)
class StrategyPlan(Program):
    """Plan of one strategy on one generation.

    Attributes:
        generation: Generation of the devices.
        inputs: Tensors of the batch that was drawn.
        usable_bytes: Memory of a device that a program can use.
        verdict: Whether the peak fits in it: "fits" with the whole reserve, "tight" with the least of it, or "no".
        with_reserve: Least and most memory with workspaces of graphs and fragments.
        memory: Memory.
        step: Predicted step.
        rate: Speed of the whole job.
        settings: What was changed of the program, such as its batch or the recomputed blocks.
        advice: What needs less memory; empty where the peak fits.
    """

    generation: str
    inputs: tuple[TensorInfo, ...]
    usable_bytes: int
    verdict: Verdict
    with_reserve: tuple[int, int]
    memory: MemoryPlan
    step: Step
    rate: RatePlan
    settings: str = ""
    advice: str = ""

    @property
    def batch_size(self) -> int:
        """Samples of a rank's batch; 0 if it is not known."""
        return next((each.shape[0] for each in self.inputs if each.shape), 0)

    @property
    def fits(self) -> bool:
        """Whether the peak fits with the whole reserve."""
        return self.verdict == "fits"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plans of a program, one per strategy, generation and other choice.

    Attributes:
        schema_version: :data:`hpu_sim.common.encoding.SCHEMA_VERSION`.
        predicted: Always True: nothing was measured.
        disclaimer: ``PREDICTED``.
        command: Program and arguments.
        strategies: The plans.
    """

    schema_version: int = SCHEMA_VERSION
    predicted: bool = True
    disclaimer: str = PREDICTED
    command: tuple[str, ...]
    strategies: tuple[StrategyPlan, ...]

    @property
    def fits(self) -> bool:
        """Whether any of the plans fits with the whole reserve."""
        return any(each.fits for each in self.strategies)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return asdict(self)
