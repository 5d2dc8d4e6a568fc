"""Event counters per source line, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.report.formatting import format_dtypes
from hpu_sim.report.schema import CollectiveStats, Frame, Kind, Site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.report.frames import FrameClassifier

#: Maximum number of sites; events of further ones are only counted in total.
MAX_SITES: Final = 1000
#: Maximum number of examples per site.
MAX_EXAMPLES: Final = 5

# A source line has several bytecode positions.
_MAX_POSITIONS: Final = 10 * MAX_SITES


class SiteCounter:
    """Mutable counters of one :class:`hpu_sim.report.schema.Site`, with the same attributes."""

    __slots__ = (
        "backward",
        "bytes",
        "code",
        "count",
        "count_in_step",
        "examples",
        "first_step",
        "frame_index",
        "in_first_step",
        "kind",
        "last_step",
        "max_per_step",
        "op",
        "stack",
        "steps",
        "variant",
    )

    def __init__(self, kind: Kind, op: str, variant: str, backward: str | None) -> None:
        self.kind: Kind = kind
        self.op = op
        self.variant = variant
        self.backward = backward
        self.frame_index: int | None = None
        self.stack: tuple[Frame, ...] = ()
        # Keeps the code object alive: positions are keyed by its id.
        self.code: CodeType | None = None
        self.count = 0
        self.bytes = 0
        self.in_first_step = 0
        self.steps = 0
        self.first_step = 0
        self.last_step = 0
        self.count_in_step = 0
        self.max_per_step = 0
        self.examples: list[str] = []

    def add(self, step: int, size: int, detail: str) -> None:
        """Count an event.

        Args:
            step: Current training step.
            size: Size in bytes.
            detail: Example to keep, in the device's notation.
        """
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

    def site(self) -> Site:
        """Return the counters as a site."""
        return Site(
            kind=self.kind,
            op=self.op,
            variant=self.variant,
            backward=self.backward,
            frame_index=self.frame_index,
            stack=self.stack,
            count=self.count,
            bytes=self.bytes,
            in_first_step=self.in_first_step,
            steps=self.steps,
            first_step=self.first_step,
            last_step=self.last_step,
            max_per_step=self.max_per_step or self.in_first_step,
            examples=tuple(map(format_dtypes, self.examples)),
        )


class SiteTable:
    """Sites of a process.

    Attributes:
        dropped_events: Number of events without a site because there are :data:`MAX_SITES` sites already.
    """

    def __init__(self, classifier: FrameClassifier) -> None:
        self.dropped_events = 0
        self._classifier = classifier
        self._by_position: dict[tuple[str, str, str, str | None, int, int], SiteCounter] = {}
        self._by_line: dict[tuple[str, str, str, str | None, str, int], SiteCounter] = {}

    def get(self, kind: Kind, op: str, variant: str, frame: FrameType | None, backward: str | None) -> SiteCounter:
        """Return the counter of an event.

        Args:
            kind: Kind of event.
            op: Name of the operator or collective.
            variant: Subdivision of the kind.
            frame: Innermost frame; None if the thread runs no Python.
            backward: Forward operator in a backward pass, else None.
        """
        user = self._classifier.user_frame(frame)
        # Reading f_lasti is free, computing f_lineno is not: compute it once per position.
        code, offset = (id(user.f_code), user.f_lasti) if user is not None else (0, 0)
        position = (kind, op, variant, backward, code, offset)
        counter = self._by_position.get(position)
        if counter is None:
            counter = self._add_position(position, SiteCounter(kind, op, variant, backward), frame, user)
        return counter

    def _add_position(
        self,
        position: tuple[str, str, str, str | None, int, int],
        counter: SiteCounter,
        frame: FrameType | None,
        user: FrameType | None,
    ) -> SiteCounter:
        file, line = (user.f_code.co_filename, user.f_lineno) if user is not None else ("", 0)
        by_line = (*position[:4], file, line)
        found = self._by_line.get(by_line)
        if found is None:
            if len(self._by_line) >= MAX_SITES:
                self.dropped_events += 1
                return counter
            counter.stack, counter.frame_index = self._classifier.stack(frame, user)
            self._by_line[by_line] = counter
            found = counter
        if len(self._by_position) < _MAX_POSITIONS and (
            found.code is None or user is None or found.code is user.f_code
        ):
            found.code = None if user is None else user.f_code
            self._by_position[position] = found
        return found

    def sites(self) -> tuple[Site, ...]:
        """Return the sites with events, most frequent first."""
        sites = [counter for counter in self._by_line.values() if counter.count]
        return tuple(counter.site() for counter in sorted(sites, key=lambda counter: -counter.count))


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
