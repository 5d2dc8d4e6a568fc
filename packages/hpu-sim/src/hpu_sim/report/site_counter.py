"""Event counters per stack and cause, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, NamedTuple

from hpu_sim.common.formatting import format_dtypes
from hpu_sim.common.frames import Frame, call_path, describe_stack, distinctive_lines, user_frame
from hpu_sim.report.causes import find_cause, find_phase
from hpu_sim.report.dynamic_shapes import MAX_SIZES, changed_dimensions
from hpu_sim.report.schema import CollectiveStats, DynamicDimension, Kind, Phase, Site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.common.frames import CallPath

#: Maximum number of sites; events of further ones are only counted in total.
MAX_SITES: Final = 1000
#: Maximum number of examples per site.
MAX_EXAMPLES: Final = 5

# Call paths whose counter is cached; a site has several.
_MAX_CACHED: Final = 4 * MAX_SITES


@dataclass(slots=True)
class SiteCounter:
    """Mutable counters of one :class:`hpu_sim.report.schema.Site`, with the same attributes."""

    kind: Kind
    op: str
    variant: str
    backward: str | None
    cause: str = ""
    phase: Phase = "training"
    frame_index: int | None = None
    stack: tuple[Frame, ...] = ()
    count: int = 0
    bytes: int = 0
    in_first_step: int = 0
    steps: int = 0
    first_step: int = 0
    last_step: int = 0
    count_in_step: int = 0
    max_per_step: int = 0
    examples: list[str] = field(default_factory=list)
    dimensions: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def add(self, step: int, size: int, detail: str) -> None:
        """Count an event."""
        self.count += 1
        self.bytes += size
        if step != self.last_step:
            self.steps += 1
            self.first_step = self.first_step or step
            self.last_step = step
            self.count_in_step = 0
        self.count_in_step += 1
        if step == 1:
            self.in_first_step += 1
        elif self.count_in_step > self.max_per_step:
            self.max_per_step = self.count_in_step
        if len(self.examples) < MAX_EXAMPLES and detail and detail not in self.examples:
            self.examples.append(detail)

    def add_shapes(self, before: str, after: str) -> None:
        """Record the dimensions in which the inputs of the operator differ."""
        for tensor, dimension, pair in changed_dimensions(self.op, before, after):
            sizes = self.dimensions.setdefault((tensor, dimension), set())
            if len(sizes) < MAX_SIZES:
                sizes.update(pair)

    def site(self) -> Site:
        """Return the counters as a site."""
        names = {each.name for each in fields(Site)} & {each.name for each in fields(self)}
        values = {name: getattr(self, name) for name in names}
        values["max_per_step"] = self.max_per_step or self.in_first_step
        values["examples"] = tuple(map(format_dtypes, self.examples))
        values["dynamic_dimensions"] = tuple(
            DynamicDimension(tensor, dimension, tuple(sorted(sizes)))
            for (tensor, dimension), sizes in self.dimensions.items()
        )
        return Site(**values)


class Origin(NamedTuple):
    """Origin of an event in the program.

    Attributes:
        frame: Innermost frame; None if the thread runs no Python.
        path: Call path of the frame.
        backward: Forward operator in a backward pass, else None.
    """

    frame: FrameType | None
    path: CallPath
    backward: str | None

    @classmethod
    def of(cls, frame: FrameType | None, backward: str | None = None) -> Origin:
        """Return the origin of an event."""
        return cls(frame, call_path(frame), backward)


class SiteTable:
    """Sites of a process.

    Attributes:
        dropped_events: Number of events without a site because there are :data:`MAX_SITES` sites already.
    """

    def __init__(self) -> None:
        self.dropped_events = 0
        self._sites: dict[tuple[object, ...], SiteCounter] = {}
        # By the hash of the call path. The code objects are kept alive because the path has their ids.
        self._cache: dict[tuple[str, str, str, str | None, int], tuple[SiteCounter, list[CodeType]]] = {}

    def get(self, kind: Kind, op: str, variant: str, origin: Origin) -> SiteCounter:
        """Return the counter of an event."""
        key = (kind, op, variant, origin.backward, hash(origin.path))
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        counter = self._find(SiteCounter(kind, op, variant, origin.backward), origin.frame)
        if counter is None:
            self.dropped_events += 1
            return SiteCounter(kind, op, variant, origin.backward)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = (counter, _code_objects(origin.frame))
        return counter

    def _find(self, counter: SiteCounter, frame: FrameType | None) -> SiteCounter | None:
        """Return the existing counter of a site, else the new one; None if there are too many."""
        user = user_frame(frame)
        counter.cause, counter.phase = find_cause(frame, user), find_phase(frame)
        lines = distinctive_lines(frame, user)
        key = (counter.kind, counter.op, counter.variant, counter.backward, counter.cause, counter.phase, lines)
        if key not in self._sites:
            if len(self._sites) >= MAX_SITES:
                return None
            counter.stack, counter.frame_index = describe_stack(frame, user)
            self._sites[key] = counter
        return self._sites[key]

    def sites(self) -> tuple[Site, ...]:
        """Return the sites with events, most frequent first."""
        counters = [counter for counter in self._sites.values() if counter.count]
        return tuple(counter.site() for counter in sorted(counters, key=lambda counter: -counter.count))


def _code_objects(frame: FrameType | None) -> list[CodeType]:
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found


class CollectiveCounter:
    """Counters of collectives by name and size."""

    def __init__(self) -> None:
        self._sizes: dict[str, dict[int, int]] = {}
        self._bytes: dict[str, int] = {}

    def add(self, name: str, size: int) -> None:
        """Count a call with ``size`` input bytes."""
        sizes = self._sizes.setdefault(name, {})
        power = 1 << max(size - 1, 0).bit_length() if size else 0
        sizes[power] = sizes.get(power, 0) + 1
        self._bytes[name] = self._bytes.get(name, 0) + size

    def stats(self) -> tuple[CollectiveStats, ...]:
        """Return the statistics of each collective, sorted by name."""
        return tuple(
            CollectiveStats(name, sum(sizes.values()), self._bytes[name], tuple(sorted(sizes.items())))
            for name, sizes in sorted(self._sizes.items())
        )
