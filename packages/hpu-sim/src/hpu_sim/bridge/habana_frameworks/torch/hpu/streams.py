"""Streams and events, subclasses of torch's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_sim.device.runtime import native

from . import _until_torch_2_3  # Relative, for type checkers.

if TYPE_CHECKING:
    import torch
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


class Stream(_until_torch_2_3.BaseStream):
    """Stream of device work. As in the bridge, the arguments are ignored."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Self:  # noqa: ARG004 - as in the bridge
        """Create a stream, or wrap that of ``stream_id``, ``device_index`` and ``device_type``."""
        return super().__new__(cls, **(kwargs if "stream_id" in kwargs else _stream_args(native().new_stream_id())))

    @property
    def hpu_stream(self) -> int:
        """Id of the stream."""
        return self.stream_id

    @property
    def priority(self) -> int:
        """Priority of the stream, which is the same for all."""
        return 0

    def id(self) -> int:
        """Return the id of the stream."""
        return self.stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, 0

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record ``event`` or a new event in the stream, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(_until_torch_2_3.BaseEvent):
    """Event of a stream. Its time is that of the host's clock."""

    _timer: _until_torch_2_3.BaseEvent

    def __new__(cls, enable_timing: bool = False) -> Self:
        """Create an event; ``enable_timing`` enables :meth:`elapsed_time`."""
        event = super().__new__(cls, device="hpu", enable_timing=enable_timing)
        # torch's `elapsed_time` accepts only its own class, no subclasses.
        event._timer = _until_torch_2_3.BaseEvent(device="hpu", enable_timing=enable_timing)
        return event

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the event in ``stream`` or the current stream."""
        # First: a program that has waited for the event may ask for its time.
        self._timer.record(stream)
        super().record(stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises:
            RuntimeError: If either was not recorded, or was created without ``enable_timing``.
        """
        return self._timer.elapsed_time(end_event._timer if isinstance(end_event, Event) else end_event)  # noqa: SLF001


class StreamContext:
    """Context manager that makes ``stream`` the current stream; None has no effect."""

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
    """Return a context manager that makes ``stream`` the current stream."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the current stream; None has no effect."""
    if stream is not None:
        native().set_current_stream_id(stream.stream_id)


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as in the bridge
    """Return the current stream."""
    return Stream(**_stream_args(native().current_stream_id()))


def default_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as in the bridge
    """Return the default stream."""
    return Stream(**_stream_args(0))


def _stream_args(stream_id: int) -> dict[str, int]:
    return {"stream_id": stream_id, "device_index": 0, "device_type": native().device_type()}
