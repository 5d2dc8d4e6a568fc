"""Streams and events."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from habana_frameworks.torch import hpu


def test_a_stream_is_a_torch_stream() -> None:
    """Its arguments are ignored, and each of the bridge's names returns the id."""
    stream: Any = hpu.Stream(device="hpu", priority=3)
    stream.synchronize()

    assert stream.hpu_stream == stream.id() == stream.stream_id
    assert (stream.device, stream.query()) == (torch.device("hpu:0"), True)
    assert isinstance(stream, torch.Stream)
    assert hpu.Stream("hpu:0", priority=-1, reserved=True).priority == 0
    assert hpu.Stream() != stream
    assert hpu.Stream.priority_range() == (0, 0)


def test_the_default_stream_is_current() -> None:
    assert hpu.current_stream() == hpu.default_stream()
    assert hpu.default_stream().stream_id == 0
    assert isinstance(hpu.current_stream(), hpu.Stream)


def test_a_context_makes_a_stream_current() -> None:
    """The context manager restores the previous stream, also after an error."""
    stream = hpu.Stream()
    before = hpu.current_stream()

    with hpu.stream(stream):
        assert hpu.current_stream() == stream
        assert torch.ones(2, device="hpu").sum().item() == 2

    assert hpu.current_stream() == before
    with pytest.raises(ZeroDivisionError), hpu.stream(stream):
        raise ZeroDivisionError
    assert hpu.current_stream() == before


def test_a_stream_can_be_set() -> None:
    """None has no effect, also as a context."""
    stream, before = hpu.Stream(), hpu.current_stream()
    hpu.set_stream(stream)
    try:
        hpu.set_stream(None)
        with hpu.stream(None):
            assert hpu.current_stream() == stream
    finally:
        hpu.set_stream(before)


def test_the_host_and_streams_can_wait() -> None:
    one, two, own = hpu.Stream(), hpu.Stream(), hpu.Event()
    event = one.record_event()
    two.wait_event(event)
    two.wait_stream(one)
    own.record()
    own.wait()
    own.wait(two)
    own.synchronize()

    assert event.query() is own.query() is True
    # It came with torch 2.4.
    assert isinstance(own, getattr(torch, "Event", hpu.Event))


def test_events_measure_milliseconds() -> None:
    """The difference may be negative, and the latest record counts."""
    start, end = hpu.Event(enable_timing=True), hpu.Event(enable_timing=True)
    start.record()
    torch.ones(100, 100, device="hpu").exp()
    end.record()
    elapsed = start.elapsed_time(end)
    backwards = end.elapsed_time(start)
    torch.ones(100, 100, device="hpu").exp()
    end.record(hpu.current_stream())

    assert 0 < elapsed == -backwards < start.elapsed_time(end)
