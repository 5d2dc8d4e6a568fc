"""Data model of records and reports, which :mod:`hpu_sim.common.encoding` decodes.

A process that acquires a device writes one :class:`RankRecord`. A :class:`Report` holds the records of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from hpu_sim.common.frames import Frame  # noqa: TC001 - decoding resolves annotations
from hpu_sim.device.config import SimConfig  # noqa: TC001 - as above
from hpu_sim.prediction.step import Step  # noqa: TC001 - as above

#: Number of the step that is predicted, in which the optimizer has its state and DDP its buckets.
RECORDED_STEP: Final = 3
#: Maximum number of examples per site.
MAX_EXAMPLES: Final = 5


@dataclass(slots=True)
class Site:
    """Counters of one kind of event with one cause and one stack.

    Attributes:
        kind: Kind of event of the device (:data:`hpu_sim.device.events.DIAGNOSTICS`).
        op: Name of the operator or collective.
        variant: Subdivision of a kind: "pinned" or "pageable" for copies, the dtype for "dtype" and "collective". For
            "compilation", the first difference: "shapes" for an operator with new input shapes or dtypes, "arguments"
            for one with new strides, views or non-tensor arguments, "operators" for a new operator, "end" for a graph
            that ended earlier than those before.
        backward: Forward operator if the event occurred in its backward pass; None outside of backward passes.
        cause: Part of a framework that caused the event below the attributed frame, such as
            "ModelCheckpoint.on_train_epoch_end"; empty if the program itself did.
        frame_index: Index in ``stack`` of the attributed frame; None if the thread ran no Python.
        stack: Stack of the first event, innermost frame first.
        count: Number of events.
        bytes: Total bytes of these events.
        in_first_step: Number of events in the first step, which includes everything before it.
        steps: Number of steps with such an event.
        last_step: Last of these steps, counted from 1.
        examples: A few distinct event details, such as dtype and shape.
    """

    kind: str
    op: str
    variant: str
    backward: str | None
    cause: str = ""
    frame_index: int | None = None
    stack: tuple[Frame, ...] = ()
    count: int = 0
    bytes: int = 0
    in_first_step: int = 0
    steps: int = 0
    last_step: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def frame(self) -> Frame | None:
        """The attributed frame; None if the thread ran no Python."""
        return None if self.frame_index is None else self.stack[self.frame_index]

    @property
    def key(self) -> tuple[object, ...]:
        """What tells the site from others, with the frames of the program, and those between the event and its line.

        Frames of frameworks further outside differ from loop to loop, and from rank to rank.
        """
        last = len(self.stack) if self.frame_index is None else self.frame_index
        lines = tuple((each.file, each.line) for index, each in enumerate(self.stack) if index <= last or each.is_user)
        has_line = self.frame_index is not None
        return self.kind, self.op, self.variant, self.backward, self.cause, has_line, lines

    def add(self, step: int, size: int, detail: str) -> None:
        """Count an event."""
        self.count += 1
        self.bytes += size
        if step != self.last_step:
            self.steps += 1
            self.last_step = step
        self.in_first_step += step == 1
        if len(self.examples) < MAX_EXAMPLES and detail and detail not in self.examples:
            self.examples.append(detail)


@dataclass(frozen=True)
class RankRecord:
    """Record of one process that acquired a device.

    Attributes:
        rank: Rank of the process.
        world_size: Number of ranks of its job.
        pid: Process id.
        module_id: Module id of its device.
        machine: The simulated machine.
        torch: Version of PyTorch.
        state: "running" until the process exits normally, then "exited". A dead process in state "running" was killed.
        totals: Counters, as returned by :func:`hpu_sim.device.counters.lifetime_stats`.
        steps: Number of completed training steps.
        sites: Event counters per source line, most frequent first.
        dropped_events: Number of events without a site because the limit of sites was reached.
        recording_error: Error that stopped recording early, if any.
        predicted: Step as in a plan, whose costs are lines of the program (``file:line``); None without one.
        notes: What slows the program on a card.
        leniences: Number of times that the simulator permitted what strict mode refuses or changes, by name.
    """

    rank: int
    world_size: int
    pid: int
    module_id: int
    machine: SimConfig
    torch: str
    state: Literal["running", "exited"]
    totals: dict[str, int]
    steps: int
    sites: tuple[Site, ...]
    dropped_events: int
    recording_error: str | None
    predicted: Step | None = None
    notes: tuple[str, ...] = ()
    leniences: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Records of all ranks of a run.

    Attributes:
        schema_version: :data:`hpu_sim.common.encoding.SCHEMA_VERSION`.
        simulated: Always True: nothing was measured on hardware.
        command: Program and arguments.
        exit_code: Exit code of the program, or the negated signal number; None if unknown.
        created: Time of the report, ISO 8601 in UTC.
        ranks: Records, sorted by rank and pid.
        missing_ranks: Ranks of the job without a record, ascending.
    """

    schema_version: int
    simulated: bool
    command: tuple[str, ...]
    exit_code: int | None
    created: str
    ranks: tuple[RankRecord, ...]
    missing_ranks: tuple[int, ...]
