"""Event counters per stack and cause, in bounded memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, NamedTuple

from hpu_sim.common.formatting import format_dtypes
from hpu_sim.common.frames import call_path, describe_stack, user_frame
from hpu_sim.report.causes import find_cause, find_phase
from hpu_sim.report.schema import Site

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from hpu_sim.common.frames import CallPath
    from hpu_sim.report.schema import Kind

#: Maximum number of sites; events of further ones are only counted in total.
MAX_SITES: Final = 1000
# Call paths whose counter is cached; a site has several.
_MAX_CACHED: Final = 4 * MAX_SITES


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
        self._sites: dict[tuple[object, ...], Site] = {}
        # By the hash of the call path. The code objects are kept alive because the path has their ids.
        self._cache: dict[tuple[str, str, str, str | None, int], tuple[Site, list[CodeType]]] = {}

    def get(self, kind: Kind, op: str, variant: str, origin: Origin) -> Site:
        """Return the counter of an event."""
        key = (kind, op, variant, origin.backward, hash(origin.path))
        cached = self._cache.get(key)
        if cached is not None:
            return cached[0]
        counter = self._find(Site(kind, op, variant, origin.backward), origin.frame)
        if counter is None:
            self.dropped_events += 1
            return Site(kind, op, variant, origin.backward)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = (counter, _code_objects(origin.frame))
        return counter

    def _find(self, counter: Site, frame: FrameType | None) -> Site | None:
        """Return the existing counter of a site, else the new one; None if there are too many."""
        user = user_frame(frame)
        counter.cause, counter.phase = find_cause(frame, user), find_phase(frame)
        counter.stack, counter.frame_index = describe_stack(frame, user)
        if len(self._sites) >= MAX_SITES:
            return self._sites.get(counter.key)
        return self._sites.setdefault(counter.key, counter)

    def sites(self) -> tuple[Site, ...]:
        """Return the sites with events, most frequent first."""
        found = sorted((site for site in self._sites.values() if site.count), key=lambda site: -site.count)
        return tuple(
            dataclasses.replace(
                each,
                max_per_step=each.max_per_step or each.in_first_step,
                examples=[format_dtypes(example) for example in each.examples],
            )
            for each in found
        )


def _code_objects(frame: FrameType | None) -> list[CodeType]:
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found
