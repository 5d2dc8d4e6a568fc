"""Base classes of streams and events: torch's own, or equivalents for torch < 2.4, which lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from typing_extensions import Self

    from hpu_sim.device.native import NativeEvent


class HostEvent:
    """Event of the device with the signatures of torch's."""

    _enable_timing: bool
    _event: NativeEvent

    def __new__(cls, device: Any = None, *, enable_timing: bool = False) -> Self:  # noqa: ARG004 - torch's signature
        """Create an event."""
        event = super().__new__(cls)
        event._enable_timing = enable_timing
        event._event = native().Event()
        return event

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the event in ``stream`` or the current stream."""
        self._event.record(_stream_id(stream))

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make later work of ``stream`` or the current stream wait for the event."""
        self._event.block(_stream_id(stream))

    def query(self) -> bool:
        """Return whether the device has reached the event."""
        return self._event.query()

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        self._event.synchronize()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises:
            RuntimeError: If either was not recorded, has not happened, or was created without ``enable_timing``.
        """
        if not (self._enable_timing and end_event._enable_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return self._event.elapsed_time(end_event._event)


class HostStream(torch.Stream):
    """Stream with the methods of newer torch."""

    def query(self) -> bool:
        """Return whether the work of the stream has run."""
        return native().query_stream(self.stream_id)

    def synchronize(self) -> None:
        """Wait for the work of the stream."""
        native().synchronize_stream(self.stream_id)

    def wait_event(self, event: torch.Event) -> None:
        """Make later work of the stream wait for ``event``."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make later work of the stream wait for the work of ``stream``."""
        event = HostEvent()
        event.record(stream)
        event.wait(self)


def _stream_id(stream: torch.Stream | None) -> int:
    return native().current_stream_id() if stream is None else stream.stream_id


if TYPE_CHECKING:
    BaseEvent = torch.Event
    BaseStream = torch.Stream
else:
    BaseEvent = getattr(torch, "Event", HostEvent)
    BaseStream = torch.Stream if hasattr(torch, "Event") else HostStream
