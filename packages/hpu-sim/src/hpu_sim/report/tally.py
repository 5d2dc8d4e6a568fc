"""Counting events by the line that caused them, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_sim.report.model import CollectiveUse, Frame, Kind, Site
from hpu_sim.report.spelling import spell

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.report.places import Places

#: Sites that are told apart; events of further ones are only counted.
MAX_SITES: Final = 1000
#: Details that are kept per site.
MAX_EXAMPLES: Final = 5

# One line of a program may be reached by several instructions.
_MAX_POSITIONS: Final = 10 * MAX_SITES


class Tally:
    """A site while it is being counted; the attributes are those of :class:`hpu_sim.report.model.Site`."""

    __slots__ = (
        "backward",
        "bytes",
        "code",
        "count",
        "examples",
        "first_step",
        "in_first_step",
        "kind",
        "last_step",
        "most_in_step",
        "place",
        "stack",
        "steps",
        "this_step",
        "variant",
        "what",
    )

    def __init__(self, kind: Kind, what: str, variant: str, backward: str | None) -> None:
        self.kind: Kind = kind
        self.what = what
        self.variant = variant
        self.backward = backward
        self.place: int | None = None
        self.stack: tuple[Frame, ...] = ()
        # Kept so that nothing else gets its id, by which the position is known.
        self.code: CodeType | None = None
        self.count = 0
        self.bytes = 0
        self.in_first_step = 0
        self.steps = 0
        self.first_step = 0
        self.last_step = 0
        self.this_step = 0
        self.most_in_step = 0
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
            self.this_step = 0
        self.this_step += 1
        if step == 1:
            self.in_first_step += 1
        elif self.this_step > self.most_in_step:
            self.most_in_step = self.this_step
        if len(self.examples) < MAX_EXAMPLES and detail and detail not in self.examples:
            self.examples.append(detail)

    def site(self) -> Site:
        """Return what was counted."""
        return Site(
            kind=self.kind,
            what=self.what,
            variant=self.variant,
            backward=self.backward,
            place=self.place,
            stack=self.stack,
            count=self.count,
            bytes=self.bytes,
            in_first_step=self.in_first_step,
            steps=self.steps,
            first_step=self.first_step,
            last_step=self.last_step,
            most_in_step=self.most_in_step or self.in_first_step,
            examples=tuple(map(spell, self.examples)),
        )


class Tallies:
    """All sites of a process.

    Attributes:
        unplaced: Events that found no place because there are :data:`MAX_SITES` already.
    """

    def __init__(self, places: Places) -> None:
        self.unplaced = 0
        self._places = places
        self._by_position: dict[tuple[str, str, str, str | None, int, int], Tally] = {}
        self._by_line: dict[tuple[str, str, str, str | None, str, int], Tally] = {}

    def find(self, kind: Kind, what: str, variant: str, frame: FrameType | None, backward: str | None) -> Tally:
        """Return the tally of an event.

        Args:
            kind: What happened.
            what: The operator or the collective.
            variant: What tells apart events of one operator.
            frame: The innermost frame; None where no Python is running.
            backward: The operator whose backward pass it is, or None.
        """
        user = self._places.find(frame)
        # Bytecode offsets come for nothing, line numbers do not; so lines are looked up once per offset.
        code, offset = (id(user.f_code), user.f_lasti) if user is not None else (0, 0)
        position = (kind, what, variant, backward, code, offset)
        tally = self._by_position.get(position)
        if tally is None:
            tally = self._by_new_position(position, Tally(kind, what, variant, backward), frame, user)
        return tally

    def _by_new_position(
        self,
        position: tuple[str, str, str, str | None, int, int],
        tally: Tally,
        frame: FrameType | None,
        user: FrameType | None,
    ) -> Tally:
        file, line = (user.f_code.co_filename, user.f_lineno) if user is not None else ("", 0)
        by_line = (*position[:4], file, line)
        found = self._by_line.get(by_line)
        if found is None:
            if len(self._by_line) >= MAX_SITES:
                self.unplaced += 1
                return tally
            tally.stack, tally.place = self._places.stack(frame, user)
            self._by_line[by_line] = tally
            found = tally
        if len(self._by_position) < _MAX_POSITIONS and (
            found.code is None or user is None or found.code is user.f_code
        ):
            found.code = None if user is None else user.f_code
            self._by_position[position] = found
        return found

    def sites(self) -> tuple[Site, ...]:
        """Return what was counted, the most frequent first."""
        tallies = [tally for tally in self._by_line.values() if tally.count]
        return tuple(tally.site() for tally in sorted(tallies, key=lambda tally: -tally.count))


class Collectives:
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

    def uses(self) -> tuple[CollectiveUse, ...]:
        """Return what was counted, by name."""
        return tuple(
            CollectiveUse(name, sum(sizes.values()), self._bytes[name], tuple(sorted(sizes.items())))
            for name, sizes in sorted(self._sizes.items())
        )
