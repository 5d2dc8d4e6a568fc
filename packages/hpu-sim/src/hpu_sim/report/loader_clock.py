"""Share of a training that goes by while the program waits for batches, measured on this host."""

from __future__ import annotations

import time
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from hpu_sim.device import media_time
from hpu_sim.report.schema import LoaderShare

if TYPE_CHECKING:
    from collections.abc import Callable


class LoaderClock:
    """Clock of what torch's DataLoaders and media pipes take between the first and the last step."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.reset()

    def reset(self) -> None:
        """Forget all steps, as in a forked process."""
        self._waited = 0.0
        self._first: LoaderShare | None = None
        self._last: LoaderShare | None = None

    def observe(self, iterator_class: Any) -> None:
        """Measure each batch that an iterator of torch's DataLoader returns."""
        draw = iterator_class.__next__

        def timed(iterator: Any) -> Any:
            start = self._now()
            try:
                return draw(iterator)
            finally:
                self._waited += self._now() - start

        iterator_class.__next__ = timed

    def on_step(self) -> None:
        """Take the time of a step of the optimizer."""
        self._last = LoaderShare(self._now(), self._waited, media_time.total.seconds, media_time.total.images)
        self._first = self._first or self._last

    def share(self) -> LoaderShare | None:
        """Return the times between the first and the last step; None before the second one."""
        if self._first is None or self._last is None or self._first is self._last:
            return None
        return LoaderShare(
            *(last - first for first, last in zip(astuple(self._first), astuple(self._last), strict=True))
        )
