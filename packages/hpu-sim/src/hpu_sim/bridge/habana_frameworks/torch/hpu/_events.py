"""The base of events: torch's class, or on torch below 2.4, which has none, one of the same kind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from hpu_sim.runtime import native

if TYPE_CHECKING:
    from typing_extensions import Self


class HostEvent:
    """An event in Python, with torch's signatures."""

    _enable_timing: bool
    _recorded: float | None

    def __new__(cls, device: Any = None, *, enable_timing: bool = False) -> Self:  # noqa: ARG004 - torch's signature
        """Make an event that has not been recorded."""
        event = super().__new__(cls)
        event._enable_timing = enable_timing
        event._recorded = None
        return event

    def record(self, stream: torch.Stream | None = None) -> None:  # noqa: ARG002 - as above
        """Note the time."""
        self._recorded = time.perf_counter()

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Let later work of ``stream`` wait for the event, which has happened."""

    def query(self) -> bool:
        """Return whether the work before the event is done, which it is."""
        return True

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        native().synchronize()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises:
            RuntimeError: If one of them was not recorded, or was made without ``enable_timing``.
        """
        if not (self._enable_timing and end_event._enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded - self._recorded) * 1e3


if TYPE_CHECKING:
    BaseEvent = torch.Event
else:
    BaseEvent = getattr(torch, "Event", HostEvent)
