"""Counting events by the line that caused them, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.report.formatting import format_dtypes
from hpu_sim.report.schema import CollectiveStats, Frame, Kind, Site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.report.frames import FrameClassifier

#: Sites that are told apart; events of further ones are only counted.
MAX_SITES: Final = 1000
#: Details that are kept per site.
MAX_EXAMPLES: Final = 5

# One line of a program may be reached by several instructions.
_MAX_POSITIONS: Final = 10 * MAX_SITES


class SiteCounter:
    """A site while it is being counted; the attributes are those of :class:`hpu_sim.report.schema.Site`."""

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
        # Kept so that nothing else gets its id, by which the position is known.
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
            step: The step it belongs to.
            size: Its bytes.
            detail: What is kept as an example, as the device spells it.
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
        """Return what was counted."""
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
    """All sites of a process.

    Attributes:
        unplaced: Events that found no place because there are :data:`MAX_SITES` already.
    """

    def __init__(self, classifier: FrameClassifier) -> None:
        self.dropped_events = 0
        self._classifier = classifier
        self._by_position: dict[tuple[str, str, str, str | None, int, int], SiteCounter] = {}
        self._by_line: dict[tuple[str, str, str, str | None, str, int], SiteCounter] = {}

    def get(self, kind: Kind, op: str, variant: str, frame: FrameType | None, backward: str | None) -> SiteCounter:
        """Return the tally of an event.

        Args:
            kind: What happened.
            op: The operator or the collective.
            variant: What tells apart events of one operator.
            frame: The innermost frame; None where no Python is running.
            backward: The operator whose backward pass it is, or None.
        """
        user = self._classifier.user_frame(frame)
        # Bytecode offsets come for nothing, line numbers do not; so lines are looked up once per offset.
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
        """Return what was counted, the most frequent first."""
        sites = [counter for counter in self._by_line.values() if counter.count]
        return tuple(counter.site() for counter in sorted(sites, key=lambda counter: -counter.count))


class CollectiveCounter:
    """Counts collectives by name and by size."""

    def __init__(self) -> None:
        self._sizes: dict[str, dict[int, int]] = {}
        self._bytes: dict[str, int] = {}

    def add(self, name: str, size: int) -> None:
        """Count a call that puts in ``size`` bytes."""
        sizes = self._sizes.setdefault(name, {})
        power = 1 << max(size - 1, 0).bit_length() if size else 0
        sizes[power] = sizes.get(power, 0) + 1
        self._bytes[name] = self._bytes.get(name, 0) + size

    def stats(self) -> tuple[CollectiveStats, ...]:
        """Return what was counted, by name."""
        return tuple(
            CollectiveStats(name, sum(sizes.values()), self._bytes[name], tuple(sorted(sizes.items())))
            for name, sizes in sorted(self._sizes.items())
        )
