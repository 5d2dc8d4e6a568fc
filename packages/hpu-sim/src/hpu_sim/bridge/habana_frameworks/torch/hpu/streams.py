"""Streams and events: torch's own classes, bound to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing_extensions import Self


class Stream(torch.Stream):
    """A queue of device work. The arguments are accepted and ignored, as on the bridge."""

    def __new__(cls, device: Any = None, priority: int = 0, **identity: Any) -> Self:  # noqa: ARG004 - the bridge's signature
        """Make a new stream, or the one that ``stream_id``, ``device_index`` and ``device_type`` name."""
        if identity:
            return super().__new__(cls, **identity)
        return super().__new__(cls, device="hpu:0")

    @property
    def hpu_stream(self) -> int:
        """Number of the stream."""
        return self.stream_id

    def id(self) -> int:
        """Return the number of the stream."""
        return self.stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority: there is one."""
        return 0, 0


class Event(torch.Event):
    """A mark in a stream. Times are measured on the host: work is done when its call returns."""

    _timer: torch.Event

    def __new__(cls, enable_timing: bool = False) -> Self:
        """Make an event; with ``enable_timing`` it can be compared with another."""
        event = super().__new__(cls, device="hpu", enable_timing=enable_timing)
        # torch compares events of exactly its own class, so each of ours keeps one.
        event._timer = torch.Event(device="hpu", enable_timing=enable_timing)
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
        return self._timer.elapsed_time(end_event._timer if isinstance(end_event, Event) else end_event)  # noqa: SLF001 - our own class


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
        torch._C._accelerator_setStream(stream)  # noqa: SLF001 - what torch.accelerator.set_stream calls, which needs torch >= 2.6


def current_stream(device: Any = None) -> Stream:  # noqa: ARG001 - the bridge's signature
    """Return the current stream."""
    return _as_hpu_stream(torch._C._accelerator_getStream(0))  # noqa: SLF001 - as above


def default_stream(device: Any = None) -> Stream:  # noqa: ARG001 - as above
    """Return the default stream."""
    return Stream(stream_id=0, device_index=0, device_type=torch._C._accelerator_getStream(0).device_type)  # noqa: SLF001 - as above


def _as_hpu_stream(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
