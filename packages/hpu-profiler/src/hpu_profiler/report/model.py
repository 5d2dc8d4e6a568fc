"""What a report says. Times are microseconds, sizes are bytes, shares are parts of 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hpu_profiler.trace.model import Trace
    from hpu_profiler.trace.operators import OperatorTotal

Cause = Literal["compilation", "data loading", "host sync", "other host work"]
#: In the order in which they are looked for: of two causes at a time the first counts.
CAUSES: tuple[Cause, ...] = ("compilation", "data loading", "host sync", "other host work")


@dataclass(frozen=True, slots=True)
class Collective:
    """Calls of a collective.

    Attributes:
        name: Which.
        calls: How many.
        time: In them.
        bytes: Put in by this rank, where the trace says so.
    """

    name: str
    calls: int
    time: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies in a direction.

    Attributes:
        direction: "to the card", "to the host", "on the card" or "unknown".
        calls: How many.
        time: In them.
        bytes: Moved, where the trace says so.
    """

    direction: str
    calls: int
    time: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Compilations:
    """Graphs that were compiled.

    Attributes:
        number: How many, as the bridge counted them; where it did not, as far as the trace shows them.
        again: Those of a graph that had been compiled with other shapes, as far as the trace shows them.
        time: In them.
    """

    number: int
    again: int
    time: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What one trace says.

    Attributes:
        name: "rank 0", and what else tells it from the others.
        trace: The trace.
        window: From the first step's begin to the last one's end.
        busy: Time in it in which the card did anything.
        idle: The rest of it, by cause.
        marks: Of the idle time without a cause of its own, what the program was in, by the innermost name that it or
            Lightning marked, the longest first.
        collective: Time in collectives.
        overlapped: Of that, with kernels running at the same time.
        collectives: By name.
        copies: By direction.
        compilations: Of graphs.
    """

    name: str
    trace: Trace
    window: float
    busy: float
    idle: dict[Cause, float]
    marks: tuple[tuple[str, float], ...]
    collective: float
    overlapped: float
    collectives: tuple[Collective, ...]
    copies: tuple[Copies, ...]
    compilations: Compilations

    @property
    def has_card(self) -> bool:
        """Whether there is any work of a card."""
        return bool(self.trace.work)

    @property
    def steps(self) -> int:
        """Recorded steps."""
        return len(self.trace.steps)

    @property
    def step_time(self) -> float:
        """Of a step, on average; 0 without steps."""
        return self.window / self.steps if self.steps else 0.0

    @property
    def exposed(self) -> float:
        """Time in collectives while nothing was computed."""
        return self.collective - self.overlapped

    @property
    def waiting(self) -> float:
        """Of a step, in collectives while nothing was computed: for data to travel, and for other ranks."""
        return self.exposed / self.steps if self.steps else 0.0

    @property
    def own_time(self) -> float:
        """Of a step, without that waiting."""
        return self.step_time - self.waiting

    @property
    def idle_share(self) -> float:
        """Of the window, in which the card did nothing."""
        return sum(self.idle.values()) / self.window if self.window else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to look at.

    Attributes:
        title: What it is, in a sentence.
        advice: What to do.
        weight: The share of time that it concerns, by which findings are sorted.
    """

    title: str
    advice: str
    weight: float


@dataclass(frozen=True, slots=True)
class Report:
    """What all traces say.

    Attributes:
        analyses: One for each trace, in order of rank.
        operators: Of all traces, the one with most time on the card first.
        slowest: The rank that the others wait for; None where there is one rank, or they are alike.
        findings: The gravest first.
    """

    analyses: tuple[Analysis, ...]
    operators: tuple[OperatorTotal, ...]
    slowest: Analysis | None
    findings: tuple[Finding, ...]

    @property
    def has_card(self) -> bool:
        """Whether any trace has work of a card."""
        return any(analysis.has_card for analysis in self.analyses)

    @property
    def is_simulated(self) -> bool:
        """Whether any card was simulated."""
        return any(analysis.trace.simulated for analysis in self.analyses)
