"""What a report holds: plain facts, one record per process that took a card. JSON carries them between processes."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

#: Raised when a reader of the JSON would have to be changed.
SCHEMA_VERSION: Final = 1

#: How much is recorded: totals only, or every event with its line.
Detail = Literal["counts", "lines"]
Kind = Literal["host_sync", "compilation", "h2d", "d2h", "collective", "dtype", "refused"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Frame:
    """A place in a Python program.

    Attributes:
        file: Path of the source, as Python knows it.
        line: Line number, from 1.
        function: Name of the function.
        source: Text of the line without its indentation; empty where the source cannot be read.
        is_user: Whether this is the program's own code, not that of a library.
    """

    file: str
    line: int
    function: str
    source: str
    is_user: bool


@dataclass(frozen=True)
class Site:
    """One kind of event at one line, counted.

    Attributes:
        kind: What happened.
        op: The operator, or the collective.
        variant: What tells apart events of one operator: "pinned" or "pageable" for copies, the dtype for "dtype" and
            "collective", "shapes", "operators" or "end" for "compilation" (see :class:`Compilation`).
        backward: The operator whose backward pass it was; None outside of backward passes.
        frame_index: Index in ``stack`` of the line that is meant; None where no Python was running.
        stack: Frames of the first time, innermost first.
        count: Events.
        bytes: Bytes of all of them together.
        in_first_step: Events of the first step, which holds everything before it, too.
        steps: Steps in which it happened.
        first_step: Number of the first of them, from 1.
        last_step: Number of the last of them.
        max_per_step: Events in the step that has most, the first one left out unless there is no other.
        examples: A few of the details that came with the events, such as dtype and shape.
    """

    kind: Kind
    op: str
    variant: str
    backward: str | None
    frame_index: int | None
    stack: tuple[Frame, ...]
    count: int
    bytes: int
    in_first_step: int
    steps: int
    first_step: int
    last_step: int
    max_per_step: int
    examples: tuple[str, ...]

    @property
    def frame(self) -> Frame | None:
        """The line that is meant."""
        return None if self.frame_index is None else self.stack[self.frame_index]


@dataclass(frozen=True)
class Compilation:
    """A graph that had to be compiled.

    Attributes:
        step: The step in which it differed from all graphs before it.
        is_recompile: Whether its operators had been compiled before in this order, with other shapes or dtypes.
        reason: "shapes": an operator had other inputs than before. "operators": another operator followed than before.
            "end": the graph ended where earlier ones went on.
        op: The first operator that differs; the empty text for "end".
        old_inputs: Dtypes and shapes of its inputs the last time; the empty text unless ``reason`` is "shapes".
        new_inputs: Dtypes and shapes of its inputs this time.
        frame: The line that called it, or that ended the graph; None where no Python was running.
    """

    step: int
    is_recompile: bool
    reason: Literal["shapes", "operators", "end"]
    op: str
    old_inputs: str
    new_inputs: str
    frame: Frame | None


@dataclass(frozen=True)
class CollectiveStats:
    """Calls of one collective.

    Attributes:
        name: Such as "allreduce".
        count: Calls.
        bytes: Bytes that this rank put in, in all calls together.
        sizes: Pairs of a size in bytes, a power of two, and the calls that put in at most that much and more than half
            of it; ascending.
    """

    name: str
    count: int
    bytes: int
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OptimizerMemory:
    """What the optimizers hold, in bytes, on this rank.

    Attributes:
        parameters: Parameters that they update.
        gradients: Gradients of these.
        optimizer_state: Their own state, such as moments.
    """

    parameters: int
    gradients: int
    optimizer_state: int


@dataclass(frozen=True)
class Steps:
    """How the training went, step by step.

    Attributes:
        finished: Steps that ended.
        syncs_per_step: Pairs of a number of host syncs and the steps that had so many, ascending; the first and the
            last step are left out, which hold what came before and after the training, too.
        steps_per_bin: Steps that share an entry of the series below.
        host_syncs: Host syncs, by bin.
        compilations: Graphs compiled, by bin.
        copied_bytes: Bytes copied either way, by bin.
    """

    finished: int
    syncs_per_step: tuple[tuple[int, int], ...]
    steps_per_bin: int
    host_syncs: tuple[int, ...]
    compilations: tuple[int, ...]
    copied_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """The simulated machine.

    Attributes:
        devices: Cards.
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        release: SynapseAI release.
        lazy: Whether operators were collected in graphs.
        memory_bytes: Memory of a card.
        torch: Version of torch.
    """

    devices: int
    generation: str
    release: str
    lazy: bool
    memory_bytes: int
    torch: str


@dataclass(frozen=True)
class UncaughtError:
    """The error that ended a process.

    Attributes:
        error: Its type.
        message: Its text, shortened.
        frame: The last line of the program's own code; None where it never ran.
    """

    error: str
    message: str
    frame: Frame | None


@dataclass(frozen=True)
class RankRecord:
    """What one process did with its card.

    Attributes:
        rank: Its rank.
        world_size: Ranks of its job.
        pid: Its process id.
        module_id: Number of its card.
        machine: The simulated machine.
        state: "exited", or "running" as long as it has not; a process that is gone and still "running" was killed.
        uncaught_error: The error that ended it, if one did.
        detail: "lines", or "counts" where only totals were kept.
        totals: As :func:`hpu_sim.counters.lifetime_stats`.
        steps: The training, step by step.
        optimizer_memory: What the optimizers hold; None where nothing is known.
        sites: Where what happened, the most frequent first; empty for "counts".
        compilations: Graphs compiled, the first ones in full; empty for "counts".
        collectives: Collectives by name; empty for "counts".
        dropped_events: Events that belong to no site because there were too many sites.
        recording_error: Why recording stopped before the process ended; None if it did not.
    """

    rank: int
    world_size: int
    pid: int
    module_id: int
    machine: Machine
    state: Literal["running", "exited"]
    uncaught_error: UncaughtError | None
    detail: Detail
    totals: dict[str, int]
    steps: Steps
    optimizer_memory: OptimizerMemory | None
    sites: tuple[Site, ...]
    compilations: tuple[Compilation, ...]
    collectives: tuple[CollectiveStats, ...]
    dropped_events: int
    recording_error: str | None


@dataclass(frozen=True)
class Report:
    """A run.

    Attributes:
        schema_version: :data:`SCHEMA_VERSION`.
        simulated: True: nothing here was measured on a card.
        command: The program and its arguments.
        exit_code: Its exit code, negative for the number of the signal that ended it; None where nobody waited for it.
        created: When the report was made, as ISO 8601 in UTC.
        ranks: Records in the order of their ranks.
        missing_ranks: Ranks of the job that left no record, ascending.
    """

    schema_version: int
    simulated: bool
    command: tuple[str, ...]
    exit_code: int | None
    created: str
    ranks: tuple[RankRecord, ...]
    missing_ranks: tuple[int, ...]


def to_dict(value: Any) -> Any:
    """Return a record or report as JSON's types."""
    return dataclasses.asdict(value)


def from_dict(kind: type[_T], data: Any) -> _T:
    """Return the record or report that :func:`encode` turned into ``data``.

    Raises:
        ValueError: If the data lack a part or were written by another version.
    """
    try:
        return typing.cast("_T", _from_dict(kind, data))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no {kind.__name__} of format {SCHEMA_VERSION}: {error!r}") from error


def _from_dict(kind: Any, data: Any) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(
            **{field.name: _from_dict(hints[field.name], data[field.name]) for field in dataclasses.fields(kind)}
        )
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(_from_dict(item_kind, item) for item_kind, item in zip(kinds, data, strict=True))
    if origin in {types.UnionType, typing.Union}:
        return None if data is None else _from_dict(arguments[0], data)
    return data
