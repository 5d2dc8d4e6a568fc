"""Streams and events: torch's own classes, bound to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hpu_sim.runtime import native

from . import _events  # Relative, so that type checkers find it too.

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """A queue of device work. The arguments are accepted and ignored, as on the bridge."""

    def __new__(cls, device: Any = None, priority: int = 0, **identity: Any) -> Self:  # noqa: ARG004 - as on the bridge
        """Make a new stream, or the one that ``stream_id``, ``device_index`` and ``device_type`` name."""
        return super().__new__(cls, **(identity or _identity(native().new_stream_id())))

    @property
    def hpu_stream(self) -> int:
        """Number of the stream."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """Priority of the stream: all have the same."""
        return 0

    def id(self) -> int:
        """Return the number of the stream."""
        return self.stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority: there is one."""
        return 0, 0

    # torch has these methods from 2.4 on; written out, they are the same on every release.

    def query(self) -> bool:
        """Return whether all work is done, which it is: a call returns when its work is done."""
        return True

    def synchronize(self) -> None:
        """Wait until all work is done."""
        native().synchronize()

    def wait_event(self, event: torch.Event) -> None:
        """Let the stream's later work wait for ``event``, which has happened."""

    def wait_stream(self, stream: torch.Stream) -> None:
        """Let the stream's later work wait for what is in ``stream``, which is done."""

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Mark the current point of the stream with ``event`` or a new one, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(_events.BaseEvent):
    """A mark in a stream. Times are measured on the host: work is done when its call returns."""

    _timer: _events.BaseEvent

    def __new__(cls, enable_timing: bool = False) -> Self:
        """Make an event; with ``enable_timing`` it can be compared with another."""
        event = super().__new__(cls, device="hpu", enable_timing=enable_timing)
        # torch compares events of exactly its own class, so each of ours keeps one.
        event._timer = _events.BaseEvent(device="hpu", enable_timing=enable_timing)
        return event

    def record(self, stream: torch.Stream | None = None) -> None:
        """Mark the current point of ``stream``, or of the current stream."""
        super().record(stream)
        self._timer.record(stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises:
            RuntimeError: If one of them was not recorded, or was made without ``enable_timing``.
        """
        return self._timer.elapsed_time(end_event._timer if isinstance(end_event, Event) else end_event)  # noqa: SLF001


class StreamContext:
    """Context in which ``stream`` is the current stream; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous = current_stream()
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            set_stream(self._previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which ``stream`` is the current stream."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the current stream; None changes nothing."""
    if stream is not None:
        native().set_current_stream_id(stream.stream_id)


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as on the bridge
    """Return the current stream."""
    return Stream(**_identity(native().current_stream_id()))


def default_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as on the bridge
    """Return the default stream."""
    return Stream(**_identity(0))


def _identity(stream_id: int) -> dict[str, int]:
    return {"stream_id": stream_id, "device_index": 0, "device_type": native().device_type()}
