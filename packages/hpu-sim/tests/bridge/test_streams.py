"""Streams and events."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch import hpu


def test_a_stream_is_a_torch_stream() -> None:
    """It is on the device, and its arguments are ignored, as in the bridge."""
    stream = hpu.Stream(device="hpu", priority=3)

    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("hpu:0")


def test_other_arguments_of_a_stream_are_ignored() -> None:
    assert hpu.Stream("hpu:0", priority=-1, reserved=True).priority == 0


def test_streams_have_ids() -> None:
    """Each of the bridge's names returns the id, and two streams differ."""
    stream = hpu.Stream()

    assert stream.hpu_stream == stream.id() == stream.stream_id
    assert hpu.Stream() != stream


def test_there_is_one_priority() -> None:
    """The argument has no effect."""
    assert hpu.Stream.priority_range() == (0, 0)


def test_the_work_of_a_stream_has_always_completed() -> None:
    stream = hpu.Stream()
    stream.synchronize()

    assert stream.query() is True


def test_the_default_stream_is_current() -> None:
    """Its id is 0."""
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


def test_none_is_not_a_stream() -> None:
    """None is accepted and has no effect."""
    before = hpu.current_stream()

    hpu.set_stream(None)
    with hpu.stream(None):
        assert hpu.current_stream() == before

    assert hpu.current_stream() == before


def test_a_stream_can_be_set() -> None:
    stream, before = hpu.Stream(), hpu.current_stream()
    hpu.set_stream(stream)
    try:
        assert hpu.current_stream() == stream
    finally:
        hpu.set_stream(before)


def test_streams_wait_for_each_other() -> None:
    one, two = hpu.Stream(), hpu.Stream()
    event = one.record_event()

    two.wait_event(event)
    two.wait_stream(one)

    assert event.query() is True


@pytest.mark.needs_torch("2.4", "events of its own")
def test_an_event_is_a_torch_event() -> None:
    """It is on the device."""
    assert isinstance(hpu.Event(), torch.Event)


def test_events_measure_time() -> None:
    """The unit is milliseconds, and the difference may be negative."""
    start, end = hpu.Event(enable_timing=True), hpu.Event(enable_timing=True)
    start.record()
    torch.ones(100, 100, device="hpu").exp()
    end.record()

    elapsed = start.elapsed_time(end)

    assert isinstance(elapsed, float)
    assert elapsed > 0
    assert end.elapsed_time(start) == -elapsed


def test_an_event_can_be_recorded_again() -> None:
    """The latest time counts."""
    start, end = hpu.Event(enable_timing=True), hpu.Event(enable_timing=True)
    start.record()
    end.record()
    first = start.elapsed_time(end)
    torch.ones(100, 100, device="hpu").exp()
    end.record(hpu.current_stream())

    assert start.elapsed_time(end) > first


def test_the_host_and_streams_can_wait_for_an_event() -> None:
    event = hpu.Event()
    event.record()
    event.wait()
    event.wait(hpu.Stream())
    event.synchronize()

    assert event.query() is True
