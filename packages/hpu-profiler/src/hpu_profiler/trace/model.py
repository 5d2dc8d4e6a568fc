"""What a trace tells, whoever wrote it. Times are microseconds by the trace's own clock, sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Kind = Literal["kernel", "copy", "memset", "collective"]


@dataclass(frozen=True, slots=True)
class Span:
    """Something of the host with a begin and an end.

    Attributes:
        name: What it was.
        begin: When it began.
        end: When it ended.
        thread: The thread's number.
    """

    name: str
    begin: float
    end: float
    thread: int

    @property
    def duration(self) -> float:
        """Microseconds from begin to end."""
        return self.end - self.begin


@dataclass(slots=True)
class Operator:
    """A call of an operator on the host.

    Attributes:
        name: "aten::mm".
        begin: When it began.
        end: When it ended.
        thread: The thread's number.
        external_id: torch's number for the call, by which a card's work refers to it; 0 where there is none.
        shapes: Shapes of its inputs as text, where they were recorded.
        own: Time in it and in no operator that it called.
        memory: Bytes that it took, less what it gave back, without the operators that it called.
    """

    name: str
    begin: float
    end: float
    thread: int
    external_id: int
    shapes: str = ""
    own: float = 0.0
    memory: int = 0

    @property
    def duration(self) -> float:
        """Microseconds from begin to end."""
        return self.end - self.begin


@dataclass(slots=True)
class Work:
    """Something that the card did.

    Attributes:
        name: What the trace calls it: a kernel, an operator.
        kind: What it was.
        lane: The engine or stream.
        begin: When it began.
        end: When it ended.
        bytes: How much it moved, where the trace says so.
        operator: The operator that launched it, where that is known.
    """

    name: str
    kind: Kind
    lane: str
    begin: float
    end: float
    bytes: int = 0
    operator: Operator | None = None

    @property
    def duration(self) -> float:
        """Microseconds from begin to end."""
        return self.end - self.begin


@dataclass(slots=True)
class Trace:
    """One process, while it was recorded.

    Attributes:
        path: The file.
        rank: The process in its training, from 0; None where the trace does not say.
        world_size: Processes of the training; 1 where the trace does not say.
        host: The machine's name, where the trace says it.
        stage: Steps of what were recorded: "training", "validation", ...; empty where the trace does not say.
        card: What the trace calls the card; empty where there is none in it.
        simulated: Whether the card was simulated.
        operators: Of the host, in order of their begin.
        work: Of the card, in order of its begin.
        steps: In order.
        spans: What programs marked on the host: Lightning's actions, data loaders, the bridge's own calls.
        compilations: Of graphs, as far as the trace shows them.
        counted: What the bridge itself counted while it was recorded, such as "graph_compilation".
        has_memory: Whether memory was recorded.
        dropped: Events that were left out, because there were too many.
    """

    path: Path
    rank: int | None = None
    world_size: int = 1
    host: str = ""
    stage: str = ""
    card: str = ""
    simulated: bool = False
    operators: list[Operator] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    steps: list[Span] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    compilations: list[Span] = field(default_factory=list)
    counted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    has_memory: bool = False
    dropped: int = 0

    @property
    def window(self) -> tuple[float, float]:
        """When the first recorded step began and the last one ended; without steps, the first and the last event."""
        if self.steps:
            return self.steps[0].begin, self.steps[-1].end
        sequences: tuple[Sequence[Operator | Work | Span], ...] = (self.operators, self.work, self.spans)
        every = [(each.begin, each.end) for sequence in sequences for each in sequence]
        if not every:
            return 0.0, 0.0
        return min(begin for begin, _ in every), max(end for _, end in every)
