"""Base classes of streams and events: torch's own, or Python equivalents for torch < 2.4, which lacks them.

With the equivalents, a race of streams is not seen: waiting for a stream or an event completes all deferred copies.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from typing_extensions import Self


class HostEvent:
    """Event in Python with torch's signatures."""

    _enable_timing: bool
    _recorded: float | None

    def __new__(cls, device: Any = None, *, enable_timing: bool = False) -> Self:  # noqa: ARG004 - torch's signature
        """Create an event."""
        event = super().__new__(cls)
        event._enable_timing = enable_timing
        event._recorded = None
        return event

    def record(self, stream: torch.Stream | None = None) -> None:  # noqa: ARG002 - as above
        """Record the current time."""
        self._recorded = time.perf_counter()

    def wait(self, stream: torch.Stream | None = None) -> None:  # noqa: ARG002 - as above
        """Make later work of ``stream`` wait for the event."""
        native().wait_for_device()

    def query(self) -> bool:
        """Return True: the work before the event has completed."""
        native().wait_for_device()
        return True

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        native().synchronize()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises:
            RuntimeError: If either was not recorded, or was created without ``enable_timing``.
        """
        if not (self._enable_timing and end_event._enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded - self._recorded) * 1e3


class HostStream(torch.Stream):
    """Stream with the methods of newer torch."""

    def query(self) -> bool:
        """Return True: the work of the stream has completed."""
        native().wait_for_device()
        return True

    def synchronize(self) -> None:
        """Wait for the work of the stream."""
        native().synchronize()

    def wait_event(self, event: torch.Event) -> None:  # noqa: ARG002 - as above
        """Make later work of the stream wait for ``event``."""
        native().wait_for_device()

    def wait_stream(self, stream: torch.Stream) -> None:  # noqa: ARG002 - as above
        """Make later work of the stream wait for the work of ``stream``."""
        native().wait_for_device()


if TYPE_CHECKING:
    BaseEvent = torch.Event
    BaseStream = torch.Stream
else:
    BaseEvent = getattr(torch, "Event", HostEvent)
    BaseStream = torch.Stream if hasattr(torch, "Event") else HostStream
